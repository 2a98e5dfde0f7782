// What `diff` prints, as text and as JSON.
#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "tools/cli/errors.h"
#include "tools/cli/format.h"
#include "tools/cli/output.h"
#include "tools/verbs/checkpoint_diff.h"
#include "tools/verbs/inspection.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kShown = 10;

std::string number(double value) { return value != 0 && std::abs(value) < 1e-4 ? "<.0001" : fixed(value, 4); }

// How a tensor is stored, and what it was where that is something else.
std::string storage(const files::TensorRecord& record) {
  const std::string original = original_dtype_name(record);
  const std::string stored = stored_as(record);
  return original == stored || record.scheme != nullptr ? stored : stored + " (was " + original + ")";
}

std::string side(const files::TensorRecord* record, bool with_shape) {
  if (record == nullptr) return "-";
  return with_shape ? human_shape(record->shape) : storage(*record);
}

// What the numbers do not say.
std::string remark(const TensorDiff& tensor) {
  if (tensor.is_only_in_a) return "only in A";
  if (tensor.is_only_in_b) return "only in B";
  if (tensor.has_other_shape) return "other shape";
  if (tensor.has_other_values && tensor.values.match != files::Match::kMeasured) return "other bytes";
  if (tensor.has_other_original_dtype) {
    return "was " + original_dtype_name(*tensor.values.reference) + ", " + original_dtype_name(*tensor.values.record);
  }
  return tensor.values.match == files::Match::kSameBytes ? "same bytes" : "";
}

bool is_measured(const TensorDiff& tensor) { return tensor.values.match == files::Match::kMeasured; }

void print_tensors(const CheckpointDiff& diff, bool list_all) {
  Table table({{"tensor"}, {"A"}, {"B"}, {"rel. error", Align::kRight}, {"largest", Align::kRight}, {""}});
  std::size_t shown = 0;
  std::size_t left_out = 0;
  for (const TensorDiff& tensor : diff.tensors) {
    if (!list_all && tensor.is_same()) continue;
    if (!list_all && shown == kShown) {
      ++left_out;
      continue;
    }
    ++shown;
    table.add({tensor.values.tensor, side(tensor.values.reference, tensor.has_other_shape),
               side(tensor.values.record, tensor.has_other_shape),
               is_measured(tensor) ? number(tensor.values.rel_rmse) : "",
               is_measured(tensor) ? number(tensor.values.max_abs) : "", remark(tensor)});
  }
  if (shown == 0) return;
  print_line("");
  table.print("  ");
  if (left_out > 0) print_line("  ... and " + std::to_string(left_out) + " more that differ; --tensors lists all");
}

void print_storage(const CheckpointDiff& diff) {
  std::map<std::string, std::int64_t> changes;
  for (const TensorDiff& tensor : diff.tensors) {
    if (!tensor.is_stored_otherwise) continue;
    ++changes[stored_as(*tensor.values.reference) + " -> " + stored_as(*tensor.values.record)];
  }
  for (const auto& [change, count] : changes) print_line("  stored  " + change + ": " + counted(count, "tensor"));
}

using Claim = bool TensorDiff::*;

std::int64_t count(const CheckpointDiff& diff, Claim claim) {
  return std::ranges::count_if(diff.tensors, [&](const TensorDiff& tensor) { return tensor.*claim; });
}

struct Count {
  const char* key;   // in JSON
  const char* text;  // in the last line
  Claim claim;
};
constexpr Count kCounts[] = {
    {"other_values", "with other values", &TensorDiff::has_other_values},
    {"stored_otherwise", "stored otherwise", &TensorDiff::is_stored_otherwise},
    {"other_original_dtype", "of another original dtype", &TensorDiff::has_other_original_dtype},
    {"other_shape", "of another shape", &TensorDiff::has_other_shape},
    {"only_in_a", "only in A", &TensorDiff::is_only_in_a},
    {"only_in_b", "only in B", &TensorDiff::is_only_in_b}};

std::string last_line(const CheckpointDiff& diff) {
  std::string line = counted(static_cast<std::int64_t>(diff.tensors.size()), "tensor") + ": ";
  line += std::to_string(std::ranges::count_if(diff.tensors, &TensorDiff::is_same)) + " the same";
  for (const Count& row : kCounts) {
    if (const std::int64_t some = count(diff, row.claim); some > 0)
      line += ", " + std::to_string(some) + " " + row.text;
  }
  if (!diff.config.empty())
    line += "; config.json differs in " + counted(static_cast<std::int64_t>(diff.config.size()), "key");
  return line;
}

ordered_json json_of(const files::TensorRecord* record) {
  if (record == nullptr) return nullptr;
  ordered_json out = {{"shape", record->shape},
                      {"original_dtype", nullptr},
                      {"stored", record->scheme != nullptr ? record->scheme->name : name(record->stored_dtype)},
                      {"group_size", nullptr}};
  if (record->original_dtype) out["original_dtype"] = name(*record->original_dtype);
  if (record->scheme != nullptr) out["group_size"] = record->group_size;
  return out;
}

ordered_json json_of(const TensorDiff& tensor) {
  ordered_json differs = ordered_json::array();
  for (const Count& row : kCounts) {
    if (tensor.*row.claim) differs.push_back(row.key);
  }
  ordered_json out = {
      {"name", tensor.values.tensor},       {"differs", std::move(differs)}, {"a", json_of(tensor.values.reference)},
      {"b", json_of(tensor.values.record)}, {"rel_rmse", nullptr},           {"max_abs", nullptr}};
  if (is_measured(tensor) || tensor.values.match == files::Match::kSameBytes) {
    out["rel_rmse"] = tensor.values.rel_rmse;  // nlohmann writes null for infinity and NaN
    out["max_abs"] = tensor.values.max_abs;
  }
  return out;
}

}  // namespace

void print_diff(const files::Checkpoint& a, const files::Checkpoint& b, const CheckpointDiff& diff, bool list_tensors) {
  print_line(printable("A  " + a.directory.string() + ", " + human_bytes(a.size_bytes)));
  print_line(printable("B  " + b.directory.string() + ", " + human_bytes(b.size_bytes)));
  print_storage(diff);
  for (const std::string& line : diff.config) print_line(printable("  config  " + line));
  print_tensors(diff, list_tensors);
  print_line(last_line(diff));
}

void print_diff_json(const files::Checkpoint& a, const files::Checkpoint& b, const CheckpointDiff& diff,
                     bool list_tensors) {
  ordered_json counts = {{"tensors", diff.tensors.size()},
                         {"same", std::ranges::count_if(diff.tensors, &TensorDiff::is_same)}};
  for (const Count& row : kCounts) counts[row.key] = count(diff, row.claim);
  ordered_json tensors = ordered_json::array();
  for (const TensorDiff& tensor : diff.tensors) {
    if (list_tensors || !tensor.is_same()) tensors.push_back(json_of(tensor));
  }
  print_json({{"a", a.directory.string()},
              {"b", b.directory.string()},
              {"same", diff.is_same()},
              {"counts", std::move(counts)},
              {"config", diff.config},
              {"tensors", std::move(tensors)}});
}

}  // namespace halfbyte::cli
