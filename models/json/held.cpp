#include "models/json/held.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace halfbyte::models {

template <class Json>
Held<Json>::Held() : json_(std::make_unique<Json>()) {}

template <class Json>
Held<Json>::Held(Json json) : json_(std::make_unique<Json>(std::move(json))) {}

template <class Json>
Held<Json>::Held(const Held& other) : json_(std::make_unique<Json>(*other)) {}

template <class Json>
Held<Json>::Held(Held&& other) noexcept = default;

template <class Json>
Held<Json>& Held<Json>::operator=(const Held& other) {
  json_ = std::make_unique<Json>(*other);
  return *this;
}

template <class Json>
Held<Json>& Held<Json>::operator=(Held&& other) noexcept = default;

template <class Json>
Held<Json>& Held<Json>::operator=(Json json) {
  json_ = std::make_unique<Json>(std::move(json));
  return *this;
}

template <class Json>
Held<Json>::~Held() = default;

template class Held<nlohmann::json>;
template class Held<nlohmann::ordered_json>;

}  // namespace halfbyte::models
