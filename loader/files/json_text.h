// JSON files of a checkpoint, read with bounds: size, depth, keys, no duplicate keys. Hostile input expected.
#pragma once

#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "loader/files/platform.h"

namespace halfbyte::files {

struct JsonLimits {
  std::uint64_t max_bytes = 16'000'000;
  int max_depth = 64;
  // An ordered_json compares each new key with all before it in its object. A map does not: no limit.
  std::uint64_t max_comparisons = std::numeric_limits<std::uint64_t>::max();
};

inline constexpr JsonLimits kConfigLimits{.max_comparisons = 200'000'000};
inline constexpr JsonLimits kManifestLimits{.max_bytes = 128'000'000};

// The whole file, or kCorrupt when it is larger than `max_bytes`.
std::string read_text(const fs::path& path, std::uint64_t max_bytes);

// Errors: kCorrupt, naming `file_name`: not JSON, invalid UTF-8, too deep, a key twice in one object.
template <class Json>
Json parse_json(std::string_view text, const std::string& file_name, const JsonLimits& limits);
extern template nlohmann::json parse_json(std::string_view, const std::string&, const JsonLimits&);
extern template nlohmann::ordered_json parse_json(std::string_view, const std::string&, const JsonLimits&);

// The message of nlohmann's parse_error, without its prefix and on one line.
std::string json_problem(const std::exception& error);

}  // namespace halfbyte::files
