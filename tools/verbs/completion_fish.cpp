// Completion for fish.
#include "tools/verbs/program_options.h"

namespace halfbyte::cli {
namespace {

// In fish a quoted text escapes backslashes and quotes alone.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string value_of(const OptionInfo& option) {
  switch (value_kind(option)) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kChoice:
      return " -x -a " + quoted(joined(option.choices, " "));
    case ValueKind::kPath:
      return " -r -F";
    case ValueKind::kText:
      break;
  }
  return " -x";
}

std::string line_of(const VerbHelp& verb, const OptionInfo& option) {
  std::string out = "complete -c halfbyte -n '__fish_seen_subcommand_from " + verb.name + "'";
  if (option.is_positional) {
    const bool is_choice = value_kind(option) == ValueKind::kChoice;
    return out + (is_choice ? " -f -a " + quoted(joined(option.choices, " ")) : " -F") + "\n";
  }
  for (const std::string& name : option.names)
    out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  return out + value_of(option) + " -d " + quoted(option.help) + "\n";
}

}  // namespace

std::string completion_of_fish(std::span<const VerbHelp> verbs) {
  std::string out =
      "# Completion of halfbyte's command line for fish; made by `halfbyte completion fish`.\n"
      "complete -c halfbyte -n __fish_use_subcommand -f -l help -d 'what there is'\n"
      "complete -c halfbyte -n __fish_use_subcommand -f -l version -d 'which halfbyte this is'\n";
  for (const VerbHelp& verb : verbs) {
    out += "complete -c halfbyte -n __fish_use_subcommand -f -a " + verb.name + " -d " + quoted(verb.summary) + "\n";
    for (const OptionInfo& option : verb.options) out += line_of(verb, option);
  }
  return out;
}

}  // namespace halfbyte::cli
