#include "tools/verbs/program_options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tools/cli/log.h"
#include "tools/cli/platform.h"
#include "tools/cli/verb.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

// Names of values that are paths.
constexpr auto kPaths =
    std::to_array<std::string_view>({"FILE", "SRC", "DST", "CKPT", "DIR", "DIR[:WEIGHT]", "ADAPTER", "OUT", "A", "B"});

OptionInfo option_from(const ordered_json& json) {
  return {.names = json.at("names"),
          .help = json.at("help"),
          .value = json.at("value"),
          .choices = json.at("choices"),
          .default_value = json.at("default"),
          .is_positional = json.at("positional"),
          .is_required = json.at("required"),
          .is_repeatable = json.at("repeatable")};
}

VerbHelp verb_from(const ordered_json& json) {
  VerbHelp out{json.at("verb"), json.at("summary"), json.at("examples"), {}};
  for (const ordered_json& option : json.at("options")) out.options.push_back(option_from(option));
  return out;
}

}  // namespace

std::vector<VerbHelp> program_options() {
  const bool has_models = runs_models();
  std::vector<VerbHelp> out;
  for (const VerbInfo& verb : verbs()) {
    if (verb.home == Home::kModel && !has_models) continue;
    const Finished finished = run_to_end(executable_path(), {std::string(verb.name), "--help", "--json"});
    const ordered_json said = ordered_json::parse(finished.output, nullptr, /*allow_exceptions=*/false);
    if (finished.exit_status == 0 && said.is_object()) {
      out.push_back(verb_from(said));
    } else {
      log_warning("'" + std::string(verb.name) + "' does not start and is left out; `halfbyte doctor` says why");
    }
  }
  return out;
}

ValueKind value_kind(const OptionInfo& option) noexcept {
  if (option.value.empty()) return ValueKind::kNone;
  if (!option.choices.empty()) return ValueKind::kChoice;
  const std::string_view name = option.is_positional ? option.names.front() : option.value;
  return std::ranges::find(kPaths, name) != kPaths.end() ? ValueKind::kPath : ValueKind::kText;
}

std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string joined(const std::vector<std::string>& words, const std::string& between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

}  // namespace halfbyte::cli
