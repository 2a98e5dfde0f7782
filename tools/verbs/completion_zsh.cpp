// Completion for zsh: a function _halfbyte for $fpath.
#include "tools/verbs/program_options.h"

namespace halfbyte::cli {
namespace {

constexpr const char* kHead = R"(#compdef halfbyte
# Completion of halfbyte's command line for zsh; made by `halfbyte completion zsh`.
_halfbyte() {
  local -a verbs
  verbs=(
)";
constexpr const char* kMiddle = R"(  )
  if (( CURRENT == 2 )); then
    _describe -t verbs verb verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
)";
constexpr const char* kTail = R"(  esac
}
if [[ $funcstack[1] == _halfbyte ]]; then
  _halfbyte "$@"
else
  compdef _halfbyte halfbyte
fi
)";

// Within a specification of _arguments.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string action_of(const OptionInfo& option) {
  switch (value_kind(option)) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kChoice:
      return ":" + escaped(option.is_positional ? option.names.front() : "value") + ":(" +
             escaped(joined(option.choices, " ")) + ")";
    case ValueKind::kPath:
      return ":" + escaped(option.is_positional ? option.names.front() : option.value) + ":_files";
    case ValueKind::kText:
      break;
  }
  return ":" + escaped(option.value) + ": ";
}

std::string arguments_of(const VerbHelp& verb) {
  std::string out = "    " + verb.name + ")\n      _arguments -S";
  int position = 0;
  for (const OptionInfo& option : verb.options) {
    if (option.is_positional) {
      out += " \\\n        " + shell_quoted(std::to_string(++position) + action_of(option));
      continue;
    }
    const std::string exclusive = option.names.size() > 1 ? "(" + joined(option.names, " ") + ")" : "";
    for (const std::string& name : option.names) {
      out += " \\\n        " + shell_quoted((option.is_repeatable ? "*" : exclusive) + name + "[" +
                                            escaped(option.help) + "]" + action_of(option));
    }
  }
  return out + "\n      ;;\n";
}

}  // namespace

std::string completion_of_zsh(std::span<const VerbHelp> verbs) {
  std::string list;
  std::string cases;
  for (const VerbHelp& verb : verbs) {
    list += "    " + shell_quoted(verb.name + ":" + escaped(verb.summary)) + "\n";
    cases += arguments_of(verb);
  }
  return kHead + list + kMiddle + cases + kTail;
}

}  // namespace halfbyte::cli
