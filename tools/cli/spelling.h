// What libraries say to people, as the command line has it: options as flags, operations as verbs.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <halfbyte/text.h>

namespace halfbyte::cli {

std::string flag(Option option);  // "--memory-limit"
const Spelling& command_line() noexcept;

std::string said(const Text& text);
std::vector<std::string> said(const std::vector<Text>& texts, const Spelling& spelling = command_line());
// The options that a text names, in their order, each once.
std::vector<std::string> flags_in(const Text& text);
// An error's line; of ours with flags.
std::string said(const std::exception& error);

}  // namespace halfbyte::cli
