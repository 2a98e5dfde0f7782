#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/cli/errors.h"
#include "tools/cli/habits.h"
#include "tools/cli/help.h"
#include "tools/cli/log.h"
#include "tools/cli/option_parser.h"
#include "tools/cli/output.h"
#include "tools/cli/platform.h"
#include "tools/cli/sudden_ends.h"
#include "tools/cli/usable_cores.h"
#include "tools/cli/verb.h"

namespace halfbyte::cli {
namespace {

std::vector<std::string> first_words() {
  std::vector<std::string> words = {"--help", "--version"};
  for (const VerbInfo& verb : verbs()) words.emplace_back(verb.name);
  return words;
}

// Of a first word that is no verb: what was meant, perhaps.
std::string first_word_hint(const std::string& word) {
  std::error_code ignored;
  const std::string guess = hint(word, first_words());
  if (!guess.empty()) return guess;
  if (word.starts_with("-")) return "; a verb comes first";
  const bool is_path = std::filesystem::exists(word, ignored);
  return is_path ? "; a verb comes first, for example 'halfbyte inspect " + word + "'" : "";
}

[[noreturn]] void refuse_first_word(const std::string& word) {
  const bool is_option = word.starts_with("-");
  throw UsageError("unknown " + std::string(is_option ? "option" : "verb") + " '" + word + "'" + first_word_hint(word) +
                       "; see 'halfbyte --help'",
                   is_option ? word : "");
}

// PREFIX/bin/halfbyte and PREFIX/libexec/halfbyte/halfbyte-model, in the build tree as where it is installed.
ExitStatus become_model_program(const VerbInfo& verb, char** argv) {
  const auto program = model_program();
  std::error_code ignored;
  if (!std::filesystem::exists(program, ignored)) {
    throw Error(ErrorCode::kNotFound, "'" + std::string(verb.name) +
                                          "' runs a model, and this halfbyte was built without LibTorch (" +
                                          program.string() + " is missing): build it with -DHALFBYTE_WITH_TORCH=ON");
  }
  check_room_for(program);
  become(program, argv, verb.waits_asleep);
}

void add_common_options(OptionParser& parser, CommonOptions& common) {
  parser.add_flag("--json", common.is_json, "print the result as JSON (docs/json.md)");
  parser.add_flag("-v,--verbose", common.verbosity, "say more on stderr");
  parser.add_flag("-q,--quiet", common.is_quiet, "no warnings, no progress");
}

// Read before the words are parsed, since what is wrong with them is told as JSON too.
bool is_json_wanted(int argc, char** argv) noexcept {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") return false;
    if (word == "--json") return true;
  }
  return false;
}

ExitStatus help(const VerbInfo& verb, const OptionParser& parser, bool is_json) {
  const std::vector<OptionInfo> options = parser.options();
  if (is_json) {
    print_json(verb_help_json(verb, options));
  } else {
    print_verb_help(verb, options);
  }
  return ExitStatus::kDone;
}

ExitStatus run_verb(const VerbInfo& verb, const VerbRow& row, int argc, char** argv) {
  OptionParser parser("halfbyte " + std::string(verb.name));
  CommonOptions common;
  common.run_with_model = [&verb, argv] { return become_model_program(verb, argv); };
  const Action action = row.prepare(parser, common);
  add_common_options(parser, common);
  if (!parser.parse(argc, argv)) return help(verb, parser, is_json_wanted(argc, argv));
  if (common.is_quiet && common.verbosity > 0) throw UsageError("-q and -v exclude each other");
  set_log_level(common.is_quiet ? LogLevel::kQuiet : common.verbosity > 0 ? LogLevel::kVerbose : LogLevel::kNormal);
  return action();
}

void print_version(bool is_json) {
  if (!is_json) return print_line("halfbyte " HALFBYTE_VERSION);
  print_json({{"version", version()}, {"runs_models", runs_models()}});
}

ExitStatus dispatch(std::span<const VerbRow> rows, int argc, char** argv);

// "help" alone, and "help VERB ...", which is "VERB --help ...".
ExitStatus program_help(std::span<const VerbRow> rows, int argc, char** argv) {
  if (argc < 3 || *argv[2] == '-' || *argv[2] == '\0') {
    print_program_help();
    return ExitStatus::kDone;
  }
  char option[] = "--help";
  std::vector<char*> words{argv[0], argv[2], option};
  words.insert(words.end(), argv + 3, argv + argc);
  words.push_back(nullptr);
  return dispatch(rows, static_cast<int>(words.size()) - 1, words.data());
}

ExitStatus dispatch(std::span<const VerbRow> rows, int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word.empty()) throw UsageError("which verb? see 'halfbyte --help'");
  if (word == "--help" || word == "-h" || word == "help") return program_help(rows, argc, argv);
  if (word == "--version") {
    print_version(is_json_wanted(argc, argv));
    return ExitStatus::kDone;
  }
  const auto all = verbs();
  const auto verb = std::find_if(all.begin(), all.end(), [&](const VerbInfo& info) { return info.name == word; });
  if (verb == all.end()) refuse_first_word(word);
  for (const VerbRow& row : rows) {
    if (row.name == word) return run_verb(*verb, row, argc, argv);
  }
  if (verb->home == Home::kModel) return become_model_program(*verb, argv);
  refuse_first_word(word);
}

}  // namespace

std::string_view version() noexcept { return HALFBYTE_VERSION; }

std::filesystem::path model_program() {
  return (executable_path().parent_path() / HALFBYTE_MODEL_FROM_BIN).lexically_normal();
}

bool runs_models() {
  std::error_code ignored;
  return std::filesystem::exists(model_program(), ignored);
}

int run_program(std::span<const VerbRow> rows, int argc, char** argv) noexcept {
  install_sudden_ends();
  const auto output = is_json_wanted(argc, argv) ? ErrorOutput::kLineAndJson : ErrorOutput::kLine;
  const auto run = [&] {
    use_usable_cores();
    return dispatch(rows, argc, argv);
  };
  return static_cast<int>(report_errors(run, output));
}

}  // namespace halfbyte::cli
