// A call's arguments in the order of a builtin's parameters.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "models/chat/jinja/callable.h"

namespace halfbyte::models::jinja {

class Arguments {
 public:
  static constexpr std::size_t kMost = 6;

  // `name`: what is called, for messages. The call outlives this. Errors: kInvalidArgument: too many, unknown, twice,
  // or one that is needed is not there.
  Arguments(std::string_view name, std::string_view parameters, const Call& call);

  const Call& call() const noexcept { return call_; }
  bool has(std::size_t index) const noexcept { return bound_[index] != nullptr; }
  const Value& at(std::size_t index) const noexcept { return *bound_[index]; }  // one that is there
  Value value_or(std::size_t index, Value fallback) const { return has(index) ? at(index) : std::move(fallback); }
  // Errors: kInvalidArgument for another type. None is as if it was left out, of `integer_or` and `text_or`.
  std::int64_t integer_or(std::size_t index, std::int64_t fallback) const;
  bool flag_or(std::size_t index, bool fallback) const;
  const Text& text(std::size_t index) const;
  const Text* text_or_null(std::size_t index) const;

 private:
  void bind(std::string_view name, std::string_view parameters);
  std::string_view name_;
  const Call& call_;
  std::array<const Value*, kMost> bound_{};
};

}  // namespace halfbyte::models::jinja
