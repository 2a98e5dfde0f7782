// Completion for bash, without the package bash-completion.
#include "tools/verbs/program_options.h"

namespace halfbyte::cli {
namespace {

// The words are taken from the line itself: bash would split them at '=' and ':'.
constexpr const char* kHead = R"(# Completion of halfbyte's command line for bash; made by `halfbyte completion bash`.
_halfbyte() {
  local line=${COMP_LINE:0:COMP_POINT} word before verb options='' choices='' kind=path arguments=''
  local -a words
  read -ra words <<<"$line"
  [[ $line == *' ' ]] && words+=('')
  COMPREPLY=()
  ((${#words[@]} < 2)) && return
  verb=${words[1]} word=${words[${#words[@]}-1]} before=${words[${#words[@]}-2]}
  if [[ $word == --*=* ]]; then
    before=${word%%=*} word=${word#*=}
  fi
  if ((${#words[@]} == 2)); then
    mapfile -t COMPREPLY < <(compgen -W "$_halfbyte_verbs" -- "$word")
    return
  fi
  case $verb in
)";

constexpr const char* kTail = R"(    *) return ;;
  esac
  if [[ $kind != none && $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  elif [[ $kind == choice ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$word")
    [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%:*}:"}")
  elif [[ $kind == path ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames 2>/dev/null
  fi
  return 0
}
complete -F _halfbyte halfbyte
)";

std::string kind_of(const OptionInfo& option) {
  switch (value_kind(option)) {
    case ValueKind::kChoice:
      return "kind=choice choices=" + shell_quoted(joined(option.choices, " "));
    case ValueKind::kText:
      return "kind=text";
    default:
      return "kind=path";
  }
}

// What follows an option, or stands without one.
std::string case_of(const VerbHelp& verb) {
  std::vector<std::string> names;
  std::string values;
  std::string arguments = "kind=text";
  for (const OptionInfo& option : verb.options) {
    if (option.is_positional) {
      arguments = kind_of(option);
      continue;
    }
    names.insert(names.end(), option.names.begin(), option.names.end());
    if (!option.value.empty()) values += "        " + joined(option.names, "|") + ") " + kind_of(option) + " ;;\n";
  }
  return "    " + verb.name + ")\n      options=" + shell_quoted(joined(names, " ")) + "\n      " + arguments +
         "\n      case $before in\n" + values + "      esac\n      ;;\n";
}

}  // namespace

std::string completion_of_bash(std::span<const VerbHelp> verbs) {
  std::vector<std::string> names{"--help", "--version"};
  std::string cases;
  for (const VerbHelp& verb : verbs) {
    names.push_back(verb.name);
    cases += case_of(verb);
  }
  return "_halfbyte_verbs=" + shell_quoted(joined(names, " ")) + "\n" + kHead + cases + kTail;
}

}  // namespace halfbyte::cli
