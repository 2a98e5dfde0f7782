// JSON files of a checkpoint, read with bounds: size, depth, keys, no duplicate keys. Hostile input expected.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "loader/files/platform.h"

namespace halfbyte::files {

struct JsonLimits {
  std::uint64_t max_bytes = 16'000'000;
  int max_depth = 64;
  std::size_t max_keys = 100'000;  // of one object; ordered_json looks them up one by one
};

inline constexpr JsonLimits kConfigLimits{};
inline constexpr JsonLimits kManifestLimits{.max_bytes = 128'000'000, .max_keys = 10'000'000};

// The whole file, or kCorrupt when it is larger than `max_bytes`.
std::string read_text(const fs::path& path, std::uint64_t max_bytes);

// Errors: kCorrupt, naming `file_name`: not JSON, invalid UTF-8, too deep, a key twice in one object.
template <class Json>
Json parse_json(std::string_view text, const std::string& file_name, const JsonLimits& limits);
extern template nlohmann::json parse_json(std::string_view, const std::string&, const JsonLimits&);
extern template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const JsonLimits&);

// What nlohmann's parse_error says, without its prefix and on one line.
std::string json_problem(const nlohmann::json::exception& error);

}  // namespace halfbyte::files
