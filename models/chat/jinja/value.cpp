#include "models/chat/jinja/value.h"

#include <algorithm>

#include <halfbyte/error.h>

#include "models/chat/jinja/compare.h"

namespace halfbyte::models::jinja {
namespace {

// What an entry takes besides its key's and value's own memory: itself, and its place in the index.
constexpr std::size_t kEntryBytes = sizeof(Dict::Entry) + 96;

template <class Content>
const Content* pointed_at(const Value& value) noexcept {
  const auto* pointer = value.get<std::shared_ptr<const Content>>();
  return pointer ? pointer->get() : nullptr;
}

}  // namespace

Value Value::undefined(std::string problem) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(problem))});
}

const Text* Value::text() const noexcept {
  const auto* box = pointed_at<StringBox>(*this);
  return box ? &box->text : nullptr;
}

bool Value::is_markup() const noexcept {
  const auto* box = pointed_at<StringBox>(*this);
  return box && box->is_markup;
}

const ListBox* Value::list() const noexcept { return pointed_at<ListBox>(*this); }
const DictBox* Value::dict() const noexcept { return pointed_at<DictBox>(*this); }
const CallableBox* Value::callable() const noexcept { return pointed_at<CallableBox>(*this); }
const LoopBox* Value::loop() const noexcept { return pointed_at<LoopBox>(*this); }

NamespaceBox* Value::space() const noexcept {
  const auto* pointer = get<std::shared_ptr<NamespaceBox>>();
  return pointer ? pointer->get() : nullptr;
}

std::optional<std::int64_t> Value::integer() const noexcept {
  if (const bool* flag = get<bool>()) return *flag ? 1 : 0;
  const auto* number = get<std::int64_t>();
  return number ? std::optional(*number) : std::nullopt;
}

std::optional<double> Value::number() const noexcept {
  if (const double* number = get<double>()) return *number;
  const auto whole = integer();
  return whole ? std::optional(static_cast<double>(*whole)) : std::nullopt;
}

int Value::depth() const noexcept {
  if (const ListBox* box = list()) return box->depth;
  if (const DictBox* box = dict()) return box->depth;
  if (const LoopBox* box = loop()) return box->items->depth + 1;
  return 0;
}

void Dict::set(Value key, Value value) {
  std::string name = key_of(key);
  const auto [place, is_new] = index_.try_emplace(std::move(name), entries_.size());
  if (is_new) {
    held_bytes_ += kEntryBytes + place->first.size();
    entries_.push_back({std::move(key), std::move(value)});
  } else {
    entries_[place->second].value = std::move(value);
  }
}

const Value* Dict::find(const Value& key) const {
  const auto at = index_.find(key_of(key));
  return at == index_.end() ? nullptr : &entries_[at->second].value;
}

const Value* Dict::find(std::string_view key) const {
  const auto at = index_.find(key_of(key));
  return at == index_.end() ? nullptr : &entries_[at->second].value;
}

const Value* NamespaceBox::find(std::string_view name) const noexcept {
  const auto at = std::ranges::find(attributes, name, &std::pair<std::string, Value>::first);
  return at == attributes.end() ? nullptr : &at->second;
}

void NamespaceBox::set(std::string_view name, Value value) {
  const auto at = std::ranges::find(attributes, name, &std::pair<std::string, Value>::first);
  if (at != attributes.end()) {
    at->second = std::move(value);
  } else {
    attributes.emplace_back(name, std::move(value));
  }
}

}  // namespace halfbyte::models::jinja
