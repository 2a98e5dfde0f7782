#include "models/chat/jinja/arguments.h"

#include <string>

#include "models/chat/jinja/compare.h"
#include "models/chat/jinja/failure.h"
#include "models/json/printable.h"

namespace halfbyte::models::jinja {
namespace {

// Takes the first word, and the blanks behind it.
std::string_view take_word(std::string_view& words) {
  const std::size_t end = std::min(words.find(' '), words.size());
  const std::string_view word = words.substr(0, end);
  words.remove_prefix(std::min(end + 1, words.size()));
  return word;
}

}  // namespace

Arguments::Arguments(std::string_view name, std::string_view parameters, const Call& call) : name_(name), call_(call) {
  if (parameters != "*") bind(name, parameters);
}

void Arguments::bind(std::string_view name, std::string_view parameters) {
  std::size_t index = 0;
  std::size_t named = 0;
  bool is_needed = true;
  while (!parameters.empty()) {
    const std::string_view parameter = take_word(parameters);
    if (parameter == "|") {
      is_needed = false;
      continue;
    }
    if (index < call_.positional.size()) bound_[index] = &call_.positional[index];
    for (const auto& [given, value] : call_.named) {
      if (given != parameter) continue;
      if (bound_[index]) fail(std::string(name) + " is given " + in_quotes(given) + " twice");
      bound_[index] = &value;
      ++named;
    }
    if (is_needed && !bound_[index]) fail(std::string(name) + " needs " + in_quotes(parameter));
    ++index;
  }
  if (call_.positional.size() > index)
    fail(std::string(name) + " takes " + std::to_string(index) + " arguments, not " +
         std::to_string(call_.positional.size()));
  if (named < call_.named.size()) fail(std::string(name) + " is given an argument by a name that it does not have");
}

std::int64_t Arguments::integer_or(std::size_t index, std::int64_t fallback) const {
  if (!has(index) || at(index).is_none()) return fallback;
  const auto value = at(index).integer();
  if (!value) fail(std::string(name_) + " wants a whole number, not a " + std::string(type_name(at(index))));
  return *value;
}

bool Arguments::flag_or(std::size_t index, bool fallback) const { return has(index) ? is_true(at(index)) : fallback; }

const Text* Arguments::text_or_null(std::size_t index) const {
  return has(index) && !at(index).is_none() ? &text(index) : nullptr;
}

const Text& Arguments::text(std::size_t index) const {
  const Text* text = has(index) ? at(index).text() : nullptr;
  if (!text)
    fail(std::string(name_) + " wants a string" + (has(index) ? ", not a " + std::string(type_name(at(index))) : ""));
  return *text;
}

}  // namespace halfbyte::models::jinja
