// A JSON value as a member of a struct whose header must not include nlohmann-json: whoever sees that compiles its
// parser, half a second a source. A value like any other: to copy it copies the JSON.
#pragma once

#include <memory>

#include <nlohmann/json_fwd.hpp>

namespace halfbyte::models {

template <class Json>
class Held {
 public:
  Held();                    // null
  explicit Held(Json json);  // braces would make a list of what is meant for the JSON
  Held(const Held& other);
  Held(Held&& other) noexcept;
  Held& operator=(const Held& other);
  Held& operator=(Held&& other) noexcept;
  Held& operator=(Json json);
  ~Held();

  Json& operator*() { return *json_; }
  const Json& operator*() const { return *json_; }
  Json* operator->() { return json_.get(); }
  const Json* operator->() const { return json_.get(); }

 private:
  std::unique_ptr<Json> json_;  // null only when moved from
};

using HeldJson = Held<nlohmann::json>;
using HeldOrderedJson = Held<nlohmann::ordered_json>;

}  // namespace halfbyte::models
