#include "tools/cli/hub_cache.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <regex>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/json_text.h"
#include "models/json/field.h"
#include "tools/cli/errors.h"
#include "tools/cli/log.h"

namespace halfbyte::cli {
namespace {

namespace fs = std::filesystem;

struct HubName {
  std::string repository;  // "org/model"
  std::string revision;    // empty: main
};

// The hub's own rule of names; a revision may have slashes ("refs/pr/1"), but no step upwards.
std::optional<HubName> parse(const std::string& word) {
  static const std::regex kName(
      "([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)(@([A-Za-z0-9][A-Za-z0-9._/-]*))?");
  std::smatch parts;
  if (word.size() > 256 || word.find("..") != std::string::npos || !std::regex_match(word, parts, kName))
    return std::nullopt;
  return HubName{parts[1], parts[3]};
}

std::string download_command(const HubName& name) {
  return "hf download " + name.repository + (name.revision.empty() ? "" : " --revision " + name.revision);
}

std::optional<fs::path> from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  if (!value || !*value) return std::nullopt;
  const std::string text = value;
  const char* home = std::getenv("HOME");
  return home && text.starts_with("~/") ? fs::path(home) / text.substr(2) : fs::path(text);
}

// The commit that a branch or tag is at, as far as the cache knows; what is no such name may be a commit.
std::string commit_of(const fs::path& repository, const std::string& revision) {
  std::ifstream in(repository / "refs" / revision);
  std::string commit;
  return in >> commit ? commit : revision;
}

constexpr auto kWeights = std::to_array<const char*>({".safetensors", ".bin", ".gguf", ".pth", ".pt"});

bool has_weights(const fs::path& file) {
  return std::ranges::any_of(kWeights, [&](const char* end) { return file.string().ends_with(end); });
}

// Files that an index of shards names; nothing where it cannot be read, which whoever opens the model will say.
std::vector<std::string> shards_of(const fs::path& index) try {
  const std::string name = index.string();
  const auto tree = files::parse_json<nlohmann::json>(files::read_text(index, files::kManifestLimits.max_bytes), name,
                                                      files::kManifestLimits);
  std::vector<std::string> shards;
  for (const auto& [tensor, shard] : JsonField(tree, name).at("weight_map").members()) shards.push_back(shard.string());
  return shards;
} catch (const Error&) {
  return {};
}

// The first thing that a snapshot lacks; empty: nothing. What is being downloaded is a link to nowhere, or no link yet.
std::string missing_in(const fs::path& snapshot, CheckpointUse use) {
  bool is_any_weight = false;
  std::vector<std::string> missing;
  for (const fs::directory_entry& entry : fs::directory_iterator(snapshot)) {
    const bool is_weight = has_weights(entry.path());
    is_any_weight = is_any_weight || is_weight;
    if (is_weight && use == CheckpointUse::kTokenizer) continue;
    if (!entry.exists()) missing.push_back(entry.path().filename());
    if (use == CheckpointUse::kTokenizer || !entry.path().string().ends_with(".index.json")) continue;
    for (const std::string& shard : shards_of(entry.path())) {
      if (!fs::exists(snapshot / shard)) missing.push_back(shard);
    }
  }
  if (!missing.empty()) return *std::ranges::min_element(missing);
  return use == CheckpointUse::kModel && !is_any_weight ? "the weights" : "";
}

[[noreturn]] void refuse(const HubName& name, const std::string& problem) {
  throw Error(ErrorCode::kNotFound, name.repository + ": " + problem + download_command(name));
}

}  // namespace

fs::path hub_cache() {
  for (const char* variable : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto path = from_environment(variable)) return *path;
  }
  if (const auto path = from_environment("HF_HOME")) return *path / "hub";
  if (const auto path = from_environment("XDG_CACHE_HOME")) return *path / "huggingface" / "hub";
  return from_environment("HOME").value_or("/") / ".cache" / "huggingface" / "hub";
}

std::string local_checkpoint(const std::string& word, CheckpointUse use) {
  std::error_code ignored;
  const auto name = parse(word);
  if (!name || fs::exists(word, ignored)) return word;
  const std::string owner = name->repository.substr(0, name->repository.find('/'));
  const std::string model = name->repository.substr(owner.size() + 1);
  const fs::path cache = hub_cache(), repository = cache / ("models--" + owner + "--" + model);
  const std::string place = "Hugging Face's cache (" + cache.string() + ")";
  if (!fs::is_directory(repository, ignored))
    refuse(*name, "is no path here, and " + place + " has no such model; to download it: ");
  const std::string revision = name->revision.empty() ? "main" : name->revision;
  const fs::path snapshot = repository / "snapshots" / commit_of(repository, revision);
  if (!fs::is_directory(snapshot, ignored))
    refuse(*name, place + " has no revision " + revision + " of it; to download it: ");
  const std::string missing = missing_in(snapshot, use);
  if (!missing.empty()) refuse(*name, place + " lacks " + missing + " of it; to download what is missing: ");
  log_info(name->repository + " is " + snapshot.string());
  return snapshot.string();
}

}  // namespace halfbyte::cli
