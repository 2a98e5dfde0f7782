#include "convert/merge/merge_record.h"

#include <nlohmann/json.hpp>

#include "convert/output/destination.h"
#include "loader/files/checkpoint_hash.h"

namespace halfbyte::convert {

models::HeldJson Merge::report() const {
  models::HeldJson out = record;
  if (tensors.empty()) return out;
  nlohmann::json& all = (*out)[kMergedTensors] = nlohmann::json::object();
  for (const auto& [name, tensor] : tensors) {
    const MergeErrors& errors = tensor->errors();
    all[name] = {{"change", errors.change.rel_rmse()},
                 {"rounding", {{"rel_rmse", errors.rounding.rel_rmse()}, {"max_abs", errors.rounding.max_abs}}}};
  }
  return out;
}

MergeErrors Merge::total() const {
  MergeErrors out;
  for (const auto& [name, tensor] : tensors) out.add(tensor->errors());
  return out;
}

// A checkpoint that records no hashes is known by the sizes of its files, which "source" has.
nlohmann::json base_record(const files::fs::path& path, const files::Checkpoint& base) {
  nlohmann::json out{{"name", destination_path(path).filename().string()}};
  const files::CheckpointIdentity identity = files::checkpoint_identity(base);
  if (identity.knows_values) out["xxh3_128"] = identity.hash;
  if (!base.manifest.conversion->is_null()) out["conversion"] = *base.manifest.conversion;
  return out;
}

}  // namespace halfbyte::convert
