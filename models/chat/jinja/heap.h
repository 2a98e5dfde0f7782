// What one run of a template may spend, and the making of values that hold memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/chat/jinja/value.h"

namespace halfbyte::models::jinja {

// A template comes from a stranger. Steps: what is evaluated, executed or compared, and one for some bytes moved.
struct Limits {
  std::uint64_t steps = 4'000'000;
  std::uint64_t steps_per_byte = 8;               // more, for each byte of the input
  std::size_t held_bytes = std::size_t{1} << 25;  // by all values alive
  std::size_t held_per_byte = 32;
  std::size_t output_bytes = std::size_t{1} << 23;
  std::size_t output_per_byte = 8;
  int nesting = 400;  // of what is evaluated within each other, calls of macros included

  // What a run on so many bytes of messages, tools and documents may spend.
  Limits for_input(std::size_t bytes) const noexcept;
};

constexpr int kMaxValueDepth = 200;  // of lists in lists

// Outlives all its values.
class Heap {
 public:
  explicit Heap(const Limits& limits) : limits_(limits), steps_left_(limits.steps) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  // Errors of all: kUnsupported beyond a limit.
  void step(std::uint64_t count = 1);
  void step_over(std::size_t bytes) { step(bytes / 32 + 1); }
  // Before so many bytes are made.
  void expect(std::size_t bytes) const;

  Value text(Text text, bool is_markup = false);
  Value text(std::string bytes, Origin origin = Origin::kTemplate) {
    return this->text(Text(std::move(bytes), origin));
  }
  Value list(std::vector<Value> items, ListKind kind = ListKind::kList, std::string_view name = {});
  Value dict(Dict entries);
  Value space();
  void set(NamespaceBox& space, std::string_view name, Value value);
  Value callable(CallableBox callable);

  // Errors: kUnsupported for more than a run may put out.
  void check_output(std::size_t bytes) const;
  const Limits& limits() const noexcept { return limits_; }

 private:
  Charge charge(std::size_t bytes);

  Limits limits_;
  std::uint64_t steps_left_;
  std::size_t held_ = 0;
  std::vector<Charge> for_good_;                       // of namespaces, which live as long as the heap
  std::vector<std::shared_ptr<NamespaceBox>> spaces_;  // may hold each other
};

}  // namespace halfbyte::models::jinja
