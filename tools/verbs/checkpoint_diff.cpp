#include "tools/verbs/checkpoint_diff.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tools/verbs/inspection.h"

namespace halfbyte::cli {
namespace {

using files::Match;
using nlohmann::ordered_json;

constexpr std::size_t kShownValueBytes = 40;
// Say where a configuration came from, not what the model is.
constexpr std::array<std::string_view, 3> kUntoldKeys = {"_name_or_path", "transformers_version", "_commit_hash"};

TensorDiff describe(const files::Comparison& row) {
  TensorDiff out;
  out.values = row;
  out.is_only_in_a = row.match == Match::kMissing;
  out.is_only_in_b = row.match == Match::kExtra;
  if (out.is_only_in_a || out.is_only_in_b) return out;
  out.has_other_shape = row.match == Match::kOtherShape;
  out.has_other_values = !out.has_other_shape && !row.is_equal();
  out.has_other_original_dtype = row.record->original_dtype != row.reference->original_dtype;
  out.is_stored_otherwise = stored_as(*row.record) != stored_as(*row.reference);
  return out;
}

// Larger comes first; NaN above all, so that the order is one.
double rank(const TensorDiff& tensor) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool is_structural = tensor.is_only_in_a || tensor.is_only_in_b || tensor.has_other_shape;
  if (is_structural || std::isnan(tensor.values.rel_rmse)) return kInfinity;
  const bool is_unmeasured = tensor.has_other_values && tensor.values.match != Match::kMeasured;
  return is_unmeasured ? kInfinity : tensor.values.rel_rmse;
}

std::string shown(const ordered_json& value) {
  if (value.is_object() || value.is_array()) return "another value";
  std::string text = value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  return text.size() <= kShownValueBytes ? text : text.substr(0, kShownValueBytes) + "...";
}

std::string config_line(const std::string& key, const ordered_json* in_a, const ordered_json* in_b) {
  if (in_b == nullptr) return key + ": only in A";
  if (in_a == nullptr) return key + ": only in B";
  if (in_a->is_structured() && in_b->is_structured()) return key + ": not the same";
  return key + ": " + shown(*in_a) + " in A, " + shown(*in_b) + " in B";
}

std::vector<std::string> config_lines(const ordered_json& a, const ordered_json& b) {
  if (!a.is_object() && !b.is_object()) return {};
  if (!b.is_object()) return {"only A has a config.json"};
  if (!a.is_object()) return {"only B has a config.json"};
  std::set<std::string> keys;
  for (const auto& [key, value] : a.items()) keys.insert(key);
  for (const auto& [key, value] : b.items()) keys.insert(key);
  std::vector<std::string> lines;
  for (const std::string& key : keys) {
    if (std::ranges::find(kUntoldKeys, key) != kUntoldKeys.end()) continue;
    const auto in_a = a.find(key);
    const auto in_b = b.find(key);
    if (in_a != a.end() && in_b != b.end() && *in_a == *in_b) continue;
    lines.push_back(config_line(key, in_a == a.end() ? nullptr : &*in_a, in_b == b.end() ? nullptr : &*in_b));
  }
  return lines;
}

}  // namespace

bool CheckpointDiff::is_same() const noexcept {
  return config.empty() && std::ranges::all_of(tensors, &TensorDiff::is_same);
}

CheckpointDiff diff(const files::Checkpoint& a, const files::Checkpoint& b,
                    const std::function<void(std::uint64_t bytes)>& progress) {
  CheckpointDiff out;
  for (const files::Comparison& row : files::compare(b, a, progress)) out.tensors.push_back(describe(row));
  std::ranges::stable_sort(out.tensors, std::greater(), rank);
  out.config = config_lines(*a.config, *b.config);
  return out;
}

}  // namespace halfbyte::cli
