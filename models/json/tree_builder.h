// Builds a JSON tree from the events of a parser (nlohmann's SAX interface), so that a reader can check each event
// before memory is spent on it, and reads a text once.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace halfbyte::models {

template <class Json>
class JsonTreeBuilder {
 public:
  using Object = typename Json::object_t;

  // The next value is this key's. False when the object has the key: a value replaces the one that is there.
  bool key(std::string key) {
    auto [member, is_new] = open_.back()->template get_ref<Object&>().emplace(std::move(key), nullptr);
    next_ = &member->second;
    return is_new;
  }
  void add(Json value) { *place() = std::move(value); }
  void open(nlohmann::detail::value_t kind) {
    Json* value = place();
    *value = Json(kind);
    open_.push_back(value);
  }
  void close() { open_.pop_back(); }

  std::size_t depth() const { return open_.size(); }
  // What is open; there must be something.
  const Json& top() const { return *open_.back(); }
  Json take() { return std::move(root_); }

 private:
  Json* place() {
    if (open_.empty()) return &root_;
    if (!open_.back()->is_array()) return next_;
    auto& array = open_.back()->template get_ref<typename Json::array_t&>();
    return &array.emplace_back();
  }

  Json root_;
  // A value grows only while nothing that it holds is open: none of these pointers outlives what it points to.
  std::vector<Json*> open_;
  Json* next_ = nullptr;  // the value of the last key
};

}  // namespace halfbyte::models
