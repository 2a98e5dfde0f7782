#include "loader/check_tensors.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include <halfbyte/error.h>

#include "models/architectures/tensor_table.h"

namespace halfbyte {
namespace {

using files::Manifest;
using files::TensorRecord;

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::string and_more(std::size_t count) {
  return count > 1 ? " (and " + std::to_string(count - 1) + " more)" : std::string();
}

const TensorRecord* find_through_ties(const Manifest& manifest, const std::string& name) {
  if (const TensorRecord* record = manifest.find(name)) return record;
  const auto tie = std::ranges::find(manifest.ties, name, &std::pair<std::string, std::string>::first);
  return tie == manifest.ties.end() ? nullptr : manifest.find(tie->second);
}

void check_one(const std::string& where, const models::ExpectedTensor& wanted, const TensorRecord& record,
               bool holds_rows) {
  const auto& shape = holds_rows || wanted.dense_shape.empty() ? wanted.shape : wanted.dense_shape;
  if (record.shape != shape) {
    throw Error(ErrorCode::kCorrupt, where + ": " + wanted.name + " has shape " + shape_text(record.shape) +
                                         "; config.json makes it " + shape_text(shape) +
                                         "; the two do not belong together");
  }
  if (!record.scheme && !is_weight_dtype(record.stored_dtype)) {
    throw Error(ErrorCode::kUnsupported, where + ": " + wanted.name + " is stored as " +
                                             std::string(name(record.stored_dtype)) +
                                             "; float32, float16 and bfloat16 can be computed with");
  }
}

void check_missing(const std::string& where, const Manifest& manifest,
                   const std::vector<models::ExpectedTensor>& expected) {
  std::vector<std::string> missing;
  for (const auto& wanted : expected) {
    if (!find_through_ties(manifest, wanted.name)) missing.push_back(wanted.name);
  }
  if (missing.empty()) return;
  throw Error(ErrorCode::kCorrupt,
              where + ": tensor " + missing.front() + and_more(missing.size()) +
                  " is missing; config.json says the model has it, so the checkpoint is incomplete");
}

void check_extra(const std::string& where, const files::Checkpoint& checkpoint, const models::ModelConfig& config,
                 const std::vector<models::ExpectedTensor>& expected) {
  std::map<std::string_view, bool> known;
  for (const auto& wanted : expected) known[wanted.name] = true;
  std::vector<std::string> extra;
  for (const TensorRecord& record : checkpoint.manifest.tensors) {
    const bool is_buffer = models::role_of(checkpoint.architecture, record.name, record.shape) == models::Role::kBuffer;
    if (!known.contains(record.name) && !is_buffer && !models::is_not_run(config, record.name))
      extra.push_back(record.name);
  }
  if (extra.empty()) return;
  throw Error(ErrorCode::kCorrupt, where + ": tensor " + extra.front() + and_more(extra.size()) +
                                       " belongs to no module of this model; config.json and the weights do not match");
}

// Nothing: not one that can be run, which converting does not ask for.
std::optional<models::ModelConfig> readable_config(const files::Checkpoint& checkpoint) try {
  return checkpoint.model_config();
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace

void check_complete(const files::Checkpoint& checkpoint) {
  if (!checkpoint.says_its_model || !checkpoint.architecture || !checkpoint.has_config()) return;
  if (const auto config = readable_config(checkpoint))
    check_missing(checkpoint.data_files.front()->path().string(), checkpoint.manifest,
                  checkpoint.architecture->expected(*config));
}

void check_tensors(const files::Checkpoint& checkpoint, const models::ModelConfig& config) {
  const std::string where = checkpoint.directory.string();
  const auto expected = checkpoint.architecture->expected(config);
  check_missing(where, checkpoint.manifest, expected);
  check_extra(where, checkpoint, config, expected);
  for (const auto& wanted : expected) {
    const TensorRecord& record = *find_through_ties(checkpoint.manifest, wanted.name);
    check_one(where, wanted, record, record.scheme || checkpoint.row_stacks.contains(record.name));
  }
}

}  // namespace halfbyte
