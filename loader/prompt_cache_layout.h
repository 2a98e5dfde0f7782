// What a file of a prompt cache consists of, for who writes and who reads it (docs/format.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "loader/files/hash.h"

namespace halfbyte::prompt_cache_layout {

// Metadata. Those of the model's fingerprint stand beside them.
inline constexpr const char* kVersionKey = "halfbyte_prompt_cache";
inline constexpr const char* kVersion = "1";
inline constexpr const char* kHashKey = "xxh3_128";

// Tensors: the tokens, int64 (tokens); of each session its tokens and the length it was read for, int64 (sessions, 2),
// the whole sequence first. Those of session 2 are "2.layers.0.keys" ...
inline constexpr const char* kTokens = "tokens";
inline constexpr const char* kSessions = "sessions";
inline constexpr std::int64_t kSessionNumbers = 2;
inline constexpr std::int64_t kMostSessions = 4;

inline std::string prefix_of(std::size_t session) { return std::to_string(session) + "."; }

// Begins the hash of a file: of its other metadata, behind which come all bytes of its tensors.
inline files::Hash128 hash_of(const std::map<std::string, std::string>& metadata) {
  files::Hash128 hash;
  for (const auto& [key, value] : metadata) {
    if (key != kHashKey) hash.update(key + '\0' + value + '\0');
  }
  return hash;
}

}  // namespace halfbyte::prompt_cache_layout
