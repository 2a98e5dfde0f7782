#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tools/cli/errors.h"
#include "tools/cli/log.h"
#include "tools/cli/option_parser.h"
#include "tools/cli/output.h"
#include "tools/cli/platform.h"
#include "tools/cli/suggest.h"
#include "tools/cli/verb.h"

namespace halfbyte::cli {
namespace {

void print_help() {
  print_line("halfbyte " HALFBYTE_VERSION ": LLM checkpoints in 4 bits, with a record of what every tensor was.\n");
  print_line("Usage: halfbyte VERB ... [--json] [-v|-q]\n\nVerbs:");
  std::size_t longest = 0;
  for (const VerbInfo& verb : verbs()) longest = std::max(longest, verb.name.size());
  for (const VerbInfo& verb : verbs()) {
    print_line("  " + std::string(verb.name) + std::string(longest + 2 - verb.name.size(), ' ') +
               std::string(verb.summary));
  }
  print_line(
      "\nExamples:\n"
      "  halfbyte quantize llama-bf16 llama-4bit\n"
      "  halfbyte inspect llama-4bit\n"
      "  halfbyte generate llama-4bit --prompt 'Once upon a time'\n\n"
      "'halfbyte VERB --help' has a verb's options. A model is a directory as Hugging Face has it, or one .safetensors "
      "file.\n"
      "Exit status: 0 done, 1 failed, 2 wrong usage, 3 bad data, 4 out of disk or memory, 130 interrupted.");
}

std::vector<std::string> first_words() {
  std::vector<std::string> words = {"--help", "--version"};
  for (const VerbInfo& verb : verbs()) words.emplace_back(verb.name);
  return words;
}

[[noreturn]] void refuse_first_word(const std::string& word) {
  const bool is_option = word.starts_with("-");
  throw UsageError("unknown " + std::string(is_option ? "option" : "verb") + " '" + word + "'" +
                   did_you_mean(word, first_words()) + (is_option ? "; a verb comes first" : "") +
                   "; see 'halfbyte --help'");
}

// PREFIX/bin/halfbyte and PREFIX/libexec/halfbyte/halfbyte-model, in the build tree as where it is installed.
ExitStatus become_model_program(std::string_view verb, char** argv) {
  const auto program = model_program();
  std::error_code ignored;
  if (!std::filesystem::exists(program, ignored)) {
    throw Error(ErrorCode::kNotFound, "'" + std::string(verb) +
                                          "' runs a model, and this halfbyte was built without LibTorch (" +
                                          program.string() + " is missing): build it with -DHALFBYTE_WITH_TORCH=ON");
  }
  become(program, argv);
}

void add_common_options(OptionParser& parser, CommonOptions& common) {
  parser.add_flag("--json", common.is_json, "print the result as JSON (docs/json.md)");
  parser.add_flag("-v,--verbose", common.verbosity, "say more on stderr");
  parser.add_flag("-q,--quiet", common.is_quiet, "no warnings, no progress");
}

ExitStatus run_verb(const VerbInfo& verb, const VerbRow& row, int argc, char** argv) {
  OptionParser parser(std::string(verb.summary), "halfbyte " + std::string(verb.name),
                      "Examples:\n" + std::string(verb.examples));
  CommonOptions common;
  const Action action = row.prepare(parser, common);
  add_common_options(parser, common);
  if (!parser.parse(argc, argv)) return ExitStatus::kDone;
  if (common.is_quiet && common.verbosity > 0) throw UsageError("-q and -v exclude each other");
  set_log_level(common.is_quiet ? LogLevel::kQuiet : common.verbosity > 0 ? LogLevel::kVerbose : LogLevel::kNormal);
  return action();
}

ExitStatus dispatch(std::span<const VerbRow> rows, int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word.empty()) throw UsageError("which verb? see 'halfbyte --help'");
  if (word == "--help" || word == "-h" || word == "help") {
    print_help();
    return ExitStatus::kDone;
  }
  if (word == "--version") {
    print_line("halfbyte " HALFBYTE_VERSION);
    return ExitStatus::kDone;
  }
  const auto all = verbs();
  const auto verb = std::find_if(all.begin(), all.end(), [&](const VerbInfo& info) { return info.name == word; });
  if (verb == all.end()) refuse_first_word(word);
  for (const VerbRow& row : rows) {
    if (row.name == word) return run_verb(*verb, row, argc, argv);
  }
  if (verb->home == Home::kModel) return become_model_program(verb->name, argv);
  refuse_first_word(word);
}

}  // namespace

std::string_view version() noexcept { return HALFBYTE_VERSION; }

std::filesystem::path model_program() {
  return (executable_path().parent_path() / HALFBYTE_MODEL_FROM_BIN).lexically_normal();
}

int run_program(std::span<const VerbRow> rows, int argc, char** argv) noexcept {
  return static_cast<int>(report_errors([&] { return dispatch(rows, argc, argv); }));
}

}  // namespace halfbyte::cli
