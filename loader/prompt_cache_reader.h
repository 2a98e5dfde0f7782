// Reads a file of a prompt cache, which may be another model's, broken or hostile.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "loader/files/safetensors.h"
#include "loader/model_fingerprint.h"
#include "models/generation/prompt_cache.h"
#include "models/modules/stored_state.h"

namespace halfbyte {

class PromptCacheReader final : public models::StateSource {
 public:
  // Reads the header. Errors: kCorrupt when this is no prompt cache; kNotFound, kIo.
  explicit PromptCacheReader(const files::fs::path& path);

  // Errors: kAlreadyExists when it is of another format, or something in it differs.
  void check(const std::vector<FingerprintPart>& fingerprint) const;
  // Everything, as the model keeps it; takes memory for what this model would keep only. Errors: kCorrupt,
  // kNoResources.
  PromptCache::State::Kept read(const Model& model) const;

  models::StoredEntry entry(const std::string& name) const override;
  at::Tensor read(const std::string& name) const override;
  [[noreturn]] void refuse(const std::string& name, const std::string& problem) const override;

 private:
  const files::SafetensorsEntry& find(const std::string& name) const;
  TokenIds numbers(const std::string& name, std::size_t rank, std::int64_t most) const;
  void check_hash() const;

  files::InputFile file_;
  std::string name_;  // of the file, for people
  files::SafetensorsHeader header_;
  std::map<std::string_view, const files::SafetensorsEntry*> by_name_;
};

}  // namespace halfbyte
