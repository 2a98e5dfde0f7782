#include "tools/cli/option_parser.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/cli/errors.h"
#include "tools/cli/output.h"
#include "tools/cli/suggest.h"

namespace halfbyte::cli {
namespace {

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

constexpr std::size_t kHelpColumn = 42;

}  // namespace

DeclaredOption DeclaredOption::required() {
  option_->required();
  return *this;
}

DeclaredOption DeclaredOption::check(Check check) {
  option_->check(CLI::Validator(std::move(check.problem_with), std::move(check.values)));
  return *this;
}

DeclaredOption DeclaredOption::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

DeclaredOption DeclaredOption::one_value() {
  option_->expected(1);
  return *this;
}

DeclaredOption DeclaredOption::repeatable() {
  option_->expected(1)->take_all();
  return *this;
}

DeclaredOption DeclaredOption::show_default() {
  option_->capture_default_str();
  return *this;
}

DeclaredOption DeclaredOption::excludes(const std::string& other) {
  option_->excludes(other);
  return *this;
}

DeclaredOption DeclaredOption::as_written() {
  option_->allow_extra_args(false);
  return *this;
}

DeclaredOption DeclaredOption::needs(const std::string& other) {
  option_->needs(other);
  return *this;
}

OptionParser::OptionParser(const std::string& summary, const std::string& usage, const std::string& footer)
    : app_(std::make_unique<CLI::App>(summary, usage)) {
  auto formatter = std::make_shared<Formatter>();
  formatter->column_width(kHelpColumn);
  app_->formatter(std::move(formatter));
  app_->footer(footer);
}

OptionParser::~OptionParser() = default;

template <class Target>
DeclaredOption OptionParser::add_option(const std::string& name, Target& target, const std::string& help) {
  return DeclaredOption(app_->add_option(name, target, help));
}

template DeclaredOption OptionParser::add_option(const std::string&, std::string&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, std::optional<std::string>&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, std::vector<std::int64_t>&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, int&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, std::int64_t&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, std::uint64_t&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, double&, const std::string&);

DeclaredOption OptionParser::add_flag(const std::string& name, bool& target, const std::string& help) {
  return DeclaredOption(app_->add_flag(name, target, help));
}

DeclaredOption OptionParser::add_flag(const std::string& name, int& target, const std::string& help) {
  return DeclaredOption(app_->add_flag(name, target, help));
}

bool OptionParser::parse(int argc, char** argv) {
  const std::vector<std::string> words(argv + 2, argv + argc);
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // CLI11 takes them from the back
  try {
    app_->parse(std::move(reversed));
    return true;
  } catch (const CLI::CallForHelp&) {
    std::string help = app_->help();
    help.erase(help.find_last_not_of('\n') + 1);
    print_line(help);
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(message_of(*app_, error, words) + "; see '" + app_->get_name() + " --help'");
  }
}

bool OptionParser::is_given(const std::string& name) const { return app_->count(name) > 0; }

}  // namespace halfbyte::cli
