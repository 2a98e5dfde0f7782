// JSON of strangers, whose depth and numbers of members have bounds before anything is made of it: nlohmann-json copies
// what is nested by recursion, and looks for a key among all of its object's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace halfbyte::server {

using Json = nlohmann::ordered_json;

inline constexpr std::size_t kMostDepth = 64, kMostMembers = 4096, kMostValues = 2 << 20;

// What is too much in a text, whether it is JSON or not: "is nested deeper than 64 levels". Empty: nothing.
std::string excess_in(std::string_view text);

// Nothing: it is no JSON, or too much.
std::optional<Json> parsed_json(const std::string& text);

}  // namespace halfbyte::server
