#include "tools/cli/help.h"

#include <algorithm>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tools/cli/output.h"
#include "tools/cli/platform.h"
#include "tools/cli/wrap.h"

namespace halfbyte::cli {
namespace {

constexpr int kUsualColumns = 80;
constexpr int kMostColumns = 100;  // longer lines are hard to read
constexpr std::size_t kHelpColumn = 26;
constexpr std::size_t kNarrow = 60;  // columns from which on options have a column of their own

std::size_t columns() {
  return static_cast<std::size_t>(std::min(output_columns().value_or(kUsualColumns), kMostColumns));
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

std::string head_of(const OptionInfo& option) {
  return joined(option.names, ", ") + (option.is_positional || option.value.empty() ? "" : " " + option.value);
}

std::string text_of(const OptionInfo& option) {
  return option.help + (option.default_value.empty() ? "" : " (default: " + option.default_value + ")");
}

void print_option(const OptionInfo& option) {
  const std::size_t width = columns();
  const std::size_t indent = width < kNarrow ? 6 : kHelpColumn;
  std::string head = "  " + with_indent("", head_of(option), 6, width - 2);
  if (width < kNarrow || columns_of(head) + 2 > indent) {
    print_line(head);
    head.clear();
  }
  head.resize(indent, ' ');
  print_line(with_indent(head, text_of(option), indent, width));
}

void print_options(const std::string& title, std::span<const OptionInfo> options, bool are_positional) {
  const auto is_wanted = [=](const OptionInfo& option) { return option.is_positional == are_positional; };
  if (std::ranges::none_of(options, is_wanted)) return;
  print_line("\n" + title + ":");
  for (const OptionInfo& option : options) {
    if (is_wanted(option)) print_option(option);
  }
}

void print_examples(std::string_view examples) {
  print_line("\nExamples:");
  std::istringstream lines{std::string(examples)};
  for (std::string line; std::getline(lines, line);) print_line(wrapped_command(line, columns()));
}

void print_paragraph(std::string_view text) { print_line(with_indent("", text, 0, columns())); }

}  // namespace

void print_program_help() {
  print_paragraph("halfbyte " + std::string(version()) +
                  ": LLM checkpoints in 4 bits, with a record of what every tensor was.");
  print_line("\nUsage: halfbyte VERB ... [--json] [-v|-q]\n\nVerbs:");
  std::size_t longest = 0;
  for (const VerbInfo& verb : verbs()) longest = std::max(longest, verb.name.size());
  for (const VerbInfo& verb : verbs()) {
    const std::string head = "  " + std::string(verb.name) + std::string(longest + 2 - verb.name.size(), ' ');
    print_line(with_indent(head, verb.summary, head.size(), columns()));
  }
  print_examples(
      "  halfbyte quantize llama-bf16 llama-4bit\n"
      "  halfbyte inspect llama-4bit\n"
      "  halfbyte generate llama-4bit --prompt 'Once upon a time'");
  print_line("");
  print_paragraph(
      "'halfbyte VERB --help' has a verb's options, 'halfbyte man' all of them. A model is a "
      "directory as Hugging Face has it, or one file: .safetensors, .gguf, .bin, .pth.");
  print_paragraph(
      "Exit status: 0 done, 1 failed, 2 wrong usage, 3 bad data, 4 out of disk or memory, 130 interrupted.");
}

void print_verb_help(const VerbInfo& verb, std::span<const OptionInfo> options) {
  print_paragraph(verb.summary);
  print_line("");
  print_line(with_indent("Usage: ", usage_of(verb.name, options), 7, columns()));
  print_options("Arguments", options, /*are_positional=*/true);
  print_options("Options", options, /*are_positional=*/false);
  print_examples(verb.examples);
}

nlohmann::ordered_json verb_help_json(const VerbInfo& verb, std::span<const OptionInfo> options) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const OptionInfo& option : options) {
    list.push_back({{"names", option.names},
                    {"help", option.help},
                    {"value", option.value},
                    {"choices", option.choices},
                    {"default", option.default_value},
                    {"positional", option.is_positional},
                    {"required", option.is_required},
                    {"repeatable", option.is_repeatable}});
  }
  return {{"verb", verb.name}, {"summary", verb.summary}, {"examples", verb.examples}, {"options", std::move(list)}};
}

std::string usage_of(std::string_view verb, std::span<const OptionInfo> options) {
  std::string out = "halfbyte " + std::string(verb);
  for (const OptionInfo& option : options) {
    if (!option.is_positional) continue;
    const std::string word = option.names[0] + (option.is_repeatable ? "..." : "");
    out += " " + (option.is_required ? word : "[" + word + "]");
  }
  for (const OptionInfo& option : options) {
    if (!option.is_positional && option.is_required) out += " " + head_of(option);
  }
  return out + " [OPTIONS]";
}

}  // namespace halfbyte::cli
