#include "models/chat/jinja/heap.h"

#include <algorithm>
#include <utility>

#include "models/chat/jinja/callable.h"
#include "models/chat/jinja/characters.h"
#include "models/chat/jinja/failure.h"

namespace halfbyte::models::jinja {
namespace {

constexpr std::size_t kBoxBytes = 64;  // of a box and what counts its owners

int depth_of(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

void check_depth(int depth) {
  if (depth > kMaxValueDepth) refuse("a list in lists deeper than " + std::to_string(kMaxValueDepth));
}

}  // namespace

Limits Limits::for_input(std::size_t bytes) const noexcept {
  Limits out = *this;
  out.steps += steps_per_byte * bytes;
  out.held_bytes += held_per_byte * bytes;
  out.output_bytes += output_per_byte * bytes;
  return out;
}

// Namespaces are let go of one by one, each of what it holds before any of them ends.
Heap::~Heap() {
  for (const auto& space : spaces_) std::exchange(space->attributes, {}).clear();
}

void Heap::step(std::uint64_t count) {
  if (count > steps_left_)
    refuse("it takes more than the " + std::to_string(limits_.steps) + " steps that a run may take");
  steps_left_ -= count;
}

void Heap::expect(std::size_t bytes) const {
  if (bytes > limits_.held_bytes - std::min(held_, limits_.held_bytes))
    refuse("it holds more than the " + std::to_string(limits_.held_bytes) + " bytes that a run may hold");
}

Charge Heap::charge(std::size_t bytes) {
  expect(bytes);
  return {held_, bytes};
}

void Heap::check_output(std::size_t bytes) const {
  if (bytes > limits_.output_bytes)
    refuse("it writes more than the " + std::to_string(limits_.output_bytes) + " bytes that a run may write");
}

Value Heap::text(Text text, bool is_markup) {
  step_over(text.size());
  const std::size_t characters = character_count(text.view());
  const std::size_t bytes = text.held_bytes() + sizeof(StringBox) + kBoxBytes;
  return Value(std::shared_ptr<const StringBox>(new StringBox{std::move(text), characters, charge(bytes), is_markup}));
}

Value Heap::list(std::vector<Value> items, ListKind kind, std::string_view name) {
  step(items.size() / 4 + 1);
  const int depth = depth_of(items);
  check_depth(depth);
  const std::size_t bytes = items.size() * sizeof(Value) + sizeof(ListBox) + kBoxBytes;
  return Value(std::shared_ptr<const ListBox>(new ListBox{kind, std::move(items), name, depth, false, charge(bytes)}));
}

Value Heap::dict(Dict entries) {
  step(entries.size() / 4 + 1);
  int depth = 0;
  for (const Dict::Entry& entry : entries.entries()) depth = std::max({depth, entry.key.depth(), entry.value.depth()});
  check_depth(++depth);
  const std::size_t bytes = entries.held_bytes() + sizeof(DictBox) + kBoxBytes;
  return Value(std::shared_ptr<const DictBox>(new DictBox{std::move(entries), depth, charge(bytes)}));
}

Value Heap::space() {
  for_good_.push_back(charge(sizeof(NamespaceBox) + kBoxBytes));
  spaces_.push_back(std::make_shared<NamespaceBox>());
  return Value(spaces_.back());
}

void Heap::set(NamespaceBox& space, std::string_view name, Value value) {
  step(space.attributes.size() + 1);
  if (!space.find(name)) for_good_.push_back(charge(name.size() + sizeof(Value) + kBoxBytes));
  space.set(name, std::move(value));
}

Value Heap::callable(CallableBox callable) {
  step();
  callable.charge.emplace(charge(sizeof(CallableBox) + kBoxBytes));
  return Value(std::shared_ptr<const CallableBox>(new CallableBox(std::move(callable))));
}

}  // namespace halfbyte::models::jinja
