// The classes of nlohmann-json that most sources use: compiled once, in instances.cpp, instead of in each of them. The
// precompiled header includes this; without it every source compiles its own, and nothing else changes.
#pragma once

#include <nlohmann/json.hpp>

namespace nlohmann {

extern template class basic_json<>;
extern template class basic_json<ordered_map>;

namespace detail {
extern template class serializer<json>;
extern template class serializer<ordered_json>;
}  // namespace detail

}  // namespace nlohmann
