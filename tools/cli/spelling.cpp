#include "tools/cli/spelling.h"

#include <algorithm>
#include <array>

#include <halfbyte/error.h>

namespace halfbyte::cli {
namespace {

struct FlagRow {
  Option option;
  std::string_view flag;
};

// Those whose flag is not the option's name.
constexpr auto kFlags = std::to_array<FlagRow>({
    {Option::kFormat, "--to"},
    {Option::kKeys, "--api-key-file"},
    {Option::kOverrides, "--dtype-for"},
    {Option::kVerbose, "-v"},
});

// "halfbyte quantize llama Q --scheme nf4".
std::string command(const OperationCall& call) {
  std::string out = "halfbyte " + std::string(name(call.operation));
  for (const std::string& argument : call.arguments) out += " " + argument;
  for (const auto& [option, value] : call.options) out += " " + flag(option) + (value.empty() ? "" : " ") + value;
  return out;
}

constexpr Spelling kCommandLine{.option = flag, .call = command};

// A Spelling is told each option that a text names; this one writes them down.
thread_local std::vector<std::string>* found_flags = nullptr;

std::string found_option(Option option) {
  std::string out = flag(option);
  if (std::ranges::find(*found_flags, out) == found_flags->end()) found_flags->push_back(out);
  return out;
}

constexpr Spelling kFinding{.option = found_option, .call = command};

}  // namespace

std::string flag(Option option) {
  const auto row = std::ranges::find(kFlags, option, &FlagRow::option);
  if (row != kFlags.end()) return std::string(row->flag);
  std::string out = "--" + std::string(name(option));
  std::ranges::replace(out, '_', '-');
  return out;
}

const Spelling& command_line() noexcept { return kCommandLine; }

std::string said(const Text& text) { return text.str(kCommandLine); }

std::vector<std::string> said(const std::vector<Text>& texts, const Spelling& spelling) {
  std::vector<std::string> out;
  for (const Text& text : texts) out.push_back(text.str(spelling));
  return out;
}

std::vector<std::string> flags_in(const Text& text) {
  std::vector<std::string> out;
  found_flags = &out;
  text.str(kFinding);
  found_flags = nullptr;
  return out;
}

std::string said(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  return ours ? said(ours->text()) : error.what();
}

}  // namespace halfbyte::cli
