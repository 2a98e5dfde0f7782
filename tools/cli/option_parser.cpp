#include "tools/cli/option_parser.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/cli/errors.h"
#include "tools/cli/habits.h"

namespace halfbyte::cli {
namespace {

template <class Target>
constexpr bool kIsList = false;
template <class Item>
constexpr bool kIsList<std::vector<Item>> = true;

std::vector<std::string> names_of(const CLI::Option& option) {
  if (option.get_positional()) return {option.get_name()};
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// "sym_int4|sym_int8" where CLI11 says "TEXT:sym_int4|sym_int8".
std::string value_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  std::string type = option.get_type_name();
  type.erase(0, type.starts_with("TEXT:") ? 5 : 0);
  return type;
}

std::vector<std::string> choices_in(const std::string& value) {
  if (value.find('|') == std::string::npos) return {};
  std::vector<std::string> out(1);
  for (const char c : value) {
    if (c == '|') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  for (std::string& choice : out) choice.resize(std::min(choice.find('['), choice.size()));  // "cuda[:N]"
  return out;
}

OptionInfo info_of(const CLI::Option& option) {
  const std::string value = value_of(option);
  return {.names = names_of(option),
          .help = option.get_description(),
          .value = value,
          .choices = choices_in(value),
          .default_value = option.get_default_str(),
          .is_positional = option.get_positional(),
          .is_required = option.get_required(),
          .is_repeatable = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll};
}

std::vector<std::string> known_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options()) {
    for (std::string& name : names_of(*option)) out.push_back(std::move(name));
  }
  return out;
}

// The part of "--option=value" that may be mistyped.
std::string before_equals(const std::string& word) { return word.substr(0, word.find('=')); }

bool is_option(const std::string& word) { return word.size() > 1 && word[0] == '-' && word != "--"; }

[[noreturn]] void fail(const CLI::App& app, const std::string& message, const std::string& option = "") {
  throw UsageError(message + "; see '" + app.get_name() + " --help'", option);
}

[[noreturn]] void refuse_option(const CLI::App& app, const std::string& word) {
  const std::string name = before_equals(word);
  fail(app, "unknown option '" + name + "'" + hint(name, known_names(app)), name);
}

// "--to gguf|safetensors is required".
std::string required_message(const CLI::App& app, const std::string& message) {
  const std::string name = message.substr(0, message.find(' '));
  if (!is_option(name)) return message;
  return name + " " + value_of(*app.get_option(name)) + message.substr(name.size());
}

std::string message_of(const CLI::App& app, const CLI::ParseError& error) {
  const std::string message = error.what();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) return required_message(app, message);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return message.substr(0, message.find(':')) + " needs a value";
  return message;
}

// CLI11 reports what is missing before what it did not know, but an unknown option is the likelier slip of the two.
[[noreturn]] void refuse(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  const std::vector<std::string> known = known_names(app);
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word.starts_with("--") && std::ranges::find(known, before_equals(word)) == known.end())
      refuse_option(app, word);
  }
  std::vector<std::string> rest = app.remaining();
  rest.erase(std::ranges::find(rest, "--"),
             rest.end());  // what follows are arguments, which something before broke off
  for (const std::string& word : rest) {
    if (is_option(word)) refuse_option(app, word);
  }
  if (!rest.empty()) fail(app, "unexpected argument '" + rest.front() + "'" + argument_hint(known));
  fail(app, message_of(app, error));
}

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

OptionParser::OptionParser(const std::string& command) : app_(std::make_unique<CLI::App>("", command)) {
  app_->set_help_flag("-h,--help", "print this");
}

OptionParser::~OptionParser() = default;

template <class Target>
DeclaredOption OptionParser::add_option(const std::string& name, Target& target, const std::string& help) {
  CLI::Option* const option = app_->add_option(name, target, help);
  if (!kIsList<Target> && !option->get_positional()) option->take_last();
  return DeclaredOption(option);
}

template DeclaredOption OptionParser::add_option(const std::string&, std::string&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, std::optional<std::string>&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, std::optional<std::int64_t>&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, std::vector<std::int64_t>&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, int&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, std::int64_t&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, std::uint64_t&, const std::string&);
template DeclaredOption OptionParser::add_option(const std::string&, double&, const std::string&);

DeclaredOption OptionParser::add_checkpoint(const std::string& name, std::string& target, const std::string& help,
                                            CheckpointUse use) {
  checkpoints_.push_back({&target, nullptr, use});
  return add_option(name, target, help);
}

DeclaredOption OptionParser::add_checkpoints(const std::string& name, std::vector<std::string>& target,
                                             const std::string& help, CheckpointUse use) {
  checkpoints_.push_back({nullptr, &target, use});
  const DeclaredOption out = add_option(name, target, help);
  app_->get_option(name)->take_all();
  return out;
}

void OptionParser::find_checkpoints() {
  for (const auto& [word, words, use] : checkpoints_) {
    for (std::string& one : words ? std::span(*words) : std::span(word, 1)) one = local_checkpoint(one, use);
  }
}

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
    find_checkpoints();
    return true;
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ParseError& error) {
    refuse(*app_, error, words);
  }
}

std::vector<OptionInfo> OptionParser::options() const {
  const CLI::App& app = *app_;
  std::vector<OptionInfo> out;
  for (const CLI::Option* option : app.get_options()) out.push_back(info_of(*option));
  std::ranges::rotate(out, out.begin() + 1);  // --help, which CLI11 declares first
  return out;
}

bool OptionParser::is_given(const std::string& name) const { return app_->count(name) > 0; }

}  // namespace halfbyte::cli
