// What every verb of the program takes, for completion and the manual page.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/cli/option_info.h"

namespace halfbyte::cli {

struct VerbHelp {
  std::string name;
  std::string summary;
  std::string examples;
  std::vector<OptionInfo> options;
};

// Each verb is asked with --help --json, those that run models too; without LibTorch they are left out.
std::vector<VerbHelp> program_options();

std::string completion_of_bash(std::span<const VerbHelp> verbs);
std::string completion_of_zsh(std::span<const VerbHelp> verbs);
std::string completion_of_fish(std::span<const VerbHelp> verbs);
std::string man_page(std::span<const VerbHelp> verbs);

// What the value of an option is, for a shell.
enum class ValueKind {
  kNone,    // the option takes none
  kChoice,  // one of its choices
  kPath,
  kText,
};
ValueKind value_kind(const OptionInfo& option) noexcept;

// 'text', whatever is in it.
std::string shell_quoted(const std::string& text);
std::string joined(const std::vector<std::string>& words, const std::string& between);

}  // namespace halfbyte::cli
