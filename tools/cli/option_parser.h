// The options of a verb: declared here, parsed by CLI11, which option_parser.cpp alone sees: whoever includes it
// compiles its validators, five seconds a source.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/cli/hub_cache.h"
#include "tools/cli/option_info.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace halfbyte::cli {

// What the value of an option must be.
struct Check {
  // What is wrong with a value, which may be put into its usual form; empty: nothing.
  std::function<std::string(std::string& value)> problem_with;
  std::string values = {};  // for --help: "auto|cpu"
};

// One option, while it is being declared.
class DeclaredOption {
 public:
  explicit DeclaredOption(CLI::Option* option) : option_(option) {}

  DeclaredOption required();
  DeclaredOption check(Check check);
  DeclaredOption type_name(const std::string& name);  // for --help: "PATTERN"
  DeclaredOption one_value();                         // exactly one
  DeclaredOption repeatable();                        // one value each time; all of them are kept
  DeclaredOption show_default();                      // --help says what the target holds now
  DeclaredOption excludes(const std::string& other);  // "--dtype", declared before
  DeclaredOption needs(const std::string& other);
  DeclaredOption as_written();  // a value like "[a, b]" is one, not two

 private:
  CLI::Option* option_;
};

class OptionParser {
 public:
  // `command` is what the user typed before them: "halfbyte quantize".
  explicit OptionParser(const std::string& command);
  ~OptionParser();
  OptionParser(const OptionParser&) = delete;
  OptionParser& operator=(const OptionParser&) = delete;

  // `name` without a dash is positional. The target gets the value when it is parsed and must outlive that: a string,
  // a number, an optional string or whole number, or a vector of strings or token ids.
  template <class Target>
  DeclaredOption add_option(const std::string& name, Target& target, const std::string& help);
  // A checkpoint to read: a path, or a name of Hugging Face's hub that its cache has, which parse() makes a path of.
  DeclaredOption add_checkpoint(const std::string& name, std::string& target, const std::string& help,
                                CheckpointUse use = CheckpointUse::kModel);
  DeclaredOption add_checkpoints(const std::string& name, std::vector<std::string>& target, const std::string& help,
                                 CheckpointUse use = CheckpointUse::kModel);
  // "-v,--verbose". An int counts how often it is given.
  DeclaredOption add_flag(const std::string& name, bool& target, const std::string& help);
  DeclaredOption add_flag(const std::string& name, int& target, const std::string& help);

  // Reads the words after the verb. Returns false when --help was asked for. Of an option with one value that is given
  // several times, the last one counts. Errors: UsageError, one line that says what was meant, perhaps;
  // kNotFound for a checkpoint's name.
  bool parse(int argc, char** argv);
  std::vector<OptionInfo> options() const;       // in the order of their declaration, --help last
  bool is_given(const std::string& name) const;  // "--scheme", once parsed

 private:
  void find_checkpoints();
  struct Checkpoint {
    std::string* word;                // null: words
    std::vector<std::string>* words;  // null: word
    CheckpointUse use;
  };
  std::unique_ptr<CLI::App> app_;
  std::vector<Checkpoint> checkpoints_;
};

}  // namespace halfbyte::cli
