// What tests of prompt caches have in common: models, prompts, and files.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <halfbyte/load_low_bit.h>
#include <halfbyte/prompt_cache_file.h>

#include "tests/places.h"

namespace halfbyte::tests {

using Kept = PromptCacheFileOptions::Kept;

inline Model load_float32(const std::filesystem::path& path) {
  return load_low_bit(path, {.dtype = DtypePolicy::float32()});
}

inline TokenIds token_run(std::int64_t first, std::int64_t count) {
  TokenIds ids = {1};
  for (std::int64_t i = 1; i < count; ++i) ids.push_back(3 + (first + 37 * i) % 90);
  return ids;
}

inline TokenIds joined(TokenIds ids, const TokenIds& more) {
  ids.insert(ids.end(), more.begin(), more.end());
  return ids;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline Generation greedy(const Model& model, const TokenIds& prompt, PromptCache* cache, std::int64_t tokens = 4) {
  return model.generate(
      {prompt}, {.max_gen_len = tokens, .temperature = 0, .logprobs = true, .ignore_eos = true, .cache = cache})[0];
}

// As a process does that begins with the file and leaves one.
inline Generation run_with(const std::filesystem::path& path, const Model& model, const TokenIds& prompt,
                           const PromptCacheFileOptions& options = {}) {
  PromptCacheFile file(model, path, options);
  Generation out = greedy(model, prompt, &file.cache());
  file.save();
  return out;
}

}  // namespace halfbyte::tests
