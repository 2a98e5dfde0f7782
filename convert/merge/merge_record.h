// What became part of a checkpoint's weights, and what that changed: for the journal, and for halfbyte.json.
#pragma once

#include <map>
#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "convert/merge/merged_rows.h"
#include "models/json/held.h"

namespace halfbyte::convert {

class Merge {
 public:
  // Of halfbyte.json's "conversion": "merge", or "training".
  std::string key = "merge";
  models::HeldJson record;  // the base, the adapters with their weights, and into what: this decides bytes
  std::map<std::string, std::shared_ptr<MergedTensor>> tensors = {};

  // The same with the errors of each tensor.
  models::HeldJson report() const;
  MergeErrors total() const;
};

// How a record names the checkpoint that it began with: by the last name of its path, its hash and how it was made.
// Errors: kIo.
nlohmann::json base_record(const files::fs::path& path, const files::Checkpoint& base);

// The key of the errors, which a report has and a record has not.
inline constexpr const char* kMergedTensors = "tensors";

}  // namespace halfbyte::convert
