#include "tools/cli/parse.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include "tools/cli/errors.h"
#include "tools/cli/output.h"
#include "tools/cli/suggest.h"

namespace halfbyte::cli {
namespace {

struct ByteUnit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr ByteUnit kByteUnits[] = {
    {"", 1},          {"B", 1},         {"KB", 1'000},    {"MB", 1'000'000},         {"GB", 1'000'000'000},
    {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TB", 1'000'000'000'000}, {"TiB", std::uint64_t{1} << 40},
};

char lower(char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter; }

std::optional<std::uint64_t> bytes_of(const std::string& text) {
  std::uint64_t number = 0;
  const char* end = text.data() + text.size();
  auto [unit, code] = std::from_chars(text.data(), end, number);
  if (code != std::errc() || number == 0) return std::nullopt;
  while (unit != end && *unit == ' ') ++unit;
  const auto is_same = [](char a, char b) { return lower(a) == lower(b); };
  for (const ByteUnit& row : kByteUnits) {
    if (!std::equal(unit, end, row.name.begin(), row.name.end(), is_same)) continue;
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / row.bytes) return std::nullopt;
    return number * row.bytes;
  }
  return std::nullopt;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// The part of "--option=value" that may be mistyped.
std::string before_equals(const std::string& word) { return word.substr(0, word.find('=')); }

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-' && word != "--"; }

// CLI11 reports what is missing before what it did not know, but an unknown option is the likelier slip of the two.
std::string message_of(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  const std::vector<std::string> known = option_names(app);
  for (const std::string& word : words) {
    if (word == "--") break;
    const std::string name = before_equals(word);
    const bool is_long = name.starts_with("--");
    if (is_long && std::find(known.begin(), known.end(), name) == known.end()) {
      return "unknown option '" + name + "'" + did_you_mean(name, known);
    }
  }
  const std::vector<std::string> rest = app.remaining();
  for (const std::string& word : rest) {
    if (is_option(word))
      return "unknown option '" + before_equals(word) + "'" + did_you_mean(before_equals(word), known);
  }
  if (!rest.empty()) return "unexpected argument '" + rest.front() + "'";
  std::string message = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return message.substr(0, message.find(':')) + " needs a value";
  }
  return message;
}

// "--scheme sym_int4|sym_int8 (sym_int4)" where CLI11 says "--scheme TEXT:sym_int4|sym_int8=sym_int4".
class Formatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional() || option->get_type_size() == 0) return "";
    std::string type = option->get_type_name();
    type.erase(0, type.starts_with("TEXT:") ? 5 : 0);
    const std::string value = option->get_default_str();
    return " " + type + (value.empty() ? "" : " (" + value + ")");
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() {
  auto formatter = std::make_shared<Formatter>();
  formatter->column_width(42);
  return formatter;
}

CLI::Validator one_of(std::vector<std::string> names) {
  std::string description = joined(names);
  std::replace(description.begin(), description.end(), ',', '|');
  description.erase(std::remove(description.begin(), description.end(), ' '), description.end());
  const auto check = [names = std::move(names)](std::string& value) -> std::string {
    if (std::find(names.begin(), names.end(), value) != names.end()) return "";
    return "'" + value + "' is not one of " + joined(names) + did_you_mean(value, names);
  };
  return CLI::Validator(check, description);
}

CLI::Validator whole_number(std::int64_t smallest, std::int64_t largest) {
  const std::string range = std::to_string(smallest) + " to " + std::to_string(largest);
  const auto check = [=](std::string& value) -> std::string {
    std::int64_t number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, code] = std::from_chars(value.data(), end, number);
    const bool is_good = code == std::errc() && stop == end && number >= smallest && number <= largest;
    return is_good ? "" : "'" + value + "' is not a whole number from " + range;
  };
  return CLI::Validator(check, "");
}

CLI::Validator number_between(double smallest, double largest) {
  char range[64];
  std::snprintf(range, sizeof range, "%g to %g", smallest, largest);
  const auto check = [=, range = std::string(range)](std::string& value) -> std::string {
    double number = 0;
    const char* end = value.data() + value.size();
    const auto [stop, code] = std::from_chars(value.data(), end, number);
    const bool is_good = code == std::errc() && stop == end && number >= smallest && number <= largest;
    return is_good ? "" : "'" + value + "' is not a number from " + range;
  };
  return CLI::Validator(check, "");
}

CLI::Validator byte_size() {
  const auto check = [](std::string& value) -> std::string {
    return bytes_of(value) ? "" : "'" + value + "' is not a size; sizes are 256MiB, 1GiB, 300MB, 65536";
  };
  return CLI::Validator(check, "");
}

std::uint64_t parse_bytes(const std::string& text) { return bytes_of(text).value(); }

bool parse_words(CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> words(argv + 2, argv + argc);
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // CLI11 takes them from the back
  try {
    app.parse(std::move(reversed));
    return true;
  } catch (const CLI::CallForHelp&) {
    std::string help = app.help();
    help.erase(help.find_last_not_of('\n') + 1);
    print_line(help);
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(message_of(app, error, words) + "; see '" + app.get_name() + " --help'");
  }
}

}  // namespace halfbyte::cli
