// What a template computes with: Python's values, as far as chat templates see them. Values are immutable but for a
// namespace's attributes, and shared; a Heap makes those that hold memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "models/chat/jinja/text.h"

namespace halfbyte::models::jinja {

class Value;
struct StringBox;
struct ListBox;
struct DictBox;
struct NamespaceBox;
struct CallableBox;
struct LoopBox;

struct None {};

// jinja2's Undefined: printed it is nothing, and most else is an error, which `problem` words.
struct Undefined {
  std::shared_ptr<const std::string> problem;
};

// kView: of a dict's items, keys or values. kGenerator: what filters like `map` give; it is true whatever it holds,
// has no length, and can be gone through once.
enum class ListKind { kList, kTuple, kView, kRange, kGenerator };

class Value {
 public:
  using Store =
      std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const StringBox>,
                   std::shared_ptr<const ListBox>, std::shared_ptr<const DictBox>, std::shared_ptr<NamespaceBox>,
                   std::shared_ptr<const CallableBox>, std::shared_ptr<const LoopBox>>;

  Value() : store_(None{}) {}
  template <class Content>
    requires(!std::is_same_v<Content, Value>) && std::is_constructible_v<Store, std::in_place_type_t<Content>, Content>
  explicit Value(Content content) : store_(std::in_place_type<Content>, std::move(content)) {}

  static Value undefined(std::string problem);

  template <class Content>
  const Content* get() const noexcept {
    return std::get_if<Content>(&store_);
  }
  bool is_undefined() const noexcept { return get<Undefined>() != nullptr; }
  bool is_none() const noexcept { return get<None>() != nullptr; }
  // Null where the value is something else.
  const Text* text() const noexcept;
  bool is_markup() const noexcept;
  const ListBox* list() const noexcept;
  const DictBox* dict() const noexcept;
  NamespaceBox* space() const noexcept;
  const CallableBox* callable() const noexcept;
  const LoopBox* loop() const noexcept;
  // Python's bool is an int.
  std::optional<std::int64_t> integer() const noexcept;
  std::optional<double> number() const noexcept;  // of both kinds

  // How deep what it holds is nested: 0 for what holds nothing, and for namespaces, which end no chain of destructors.
  int depth() const noexcept;
  const Store& store() const noexcept { return store_; }

 private:
  Store store_;
};

// Memory that a value holds, counted while it lives.
class Charge {
 public:
  Charge() = default;
  Charge(std::size_t& held, std::size_t bytes) noexcept : held_(&held), bytes_(bytes) { held += bytes; }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  Charge(Charge&& other) noexcept : held_(std::exchange(other.held_, nullptr)), bytes_(other.bytes_) {}
  Charge& operator=(Charge&&) = delete;
  ~Charge() {
    if (held_) *held_ -= bytes_;
  }

 private:
  std::size_t* held_ = nullptr;
  std::size_t bytes_ = 0;
};

struct StringBox {
  Text text;
  std::size_t characters;
  Charge charge = {};
  bool is_markup = false;  // jinja2's Markup: what joins it is escaped for HTML
};

struct ListBox {
  ListKind kind;
  std::vector<Value> items;
  std::string_view name = {};  // of a view: "dict_keys"
  int depth = 1;
  mutable bool is_spent = false;  // a generator that was gone through
  Charge charge = {};
};

// In the order of insertion.
class Dict {
 public:
  struct Entry {
    Value key;
    Value value;
  };
  // Errors: kInvalidArgument for a key that Python cannot hash.
  void set(Value key, Value value);
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  std::size_t size() const noexcept { return entries_.size(); }
  std::size_t held_bytes() const noexcept { return held_bytes_; }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
  std::size_t held_bytes_ = 0;
};

struct DictBox {
  Dict entries;
  int depth = 1;
  Charge charge = {};
};

struct NamespaceBox {
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* find(std::string_view name) const noexcept;
  void set(std::string_view name, Value value);
};

// The `loop` of a for statement, at one of its items.
struct LoopBox {
  std::shared_ptr<const ListBox> items;
  mutable std::size_t index = 0;
  mutable std::optional<Value> changed_from = {};  // what loop.changed() was last asked about
};

}  // namespace halfbyte::models::jinja
