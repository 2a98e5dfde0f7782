#include "loader/files/compressed_tensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include <halfbyte/error.h>

#include "loader/files/derive.h"
#include "loader/files/json_fields.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr const char* kPackedSuffix = "_packed";
constexpr const char* kScaleSuffix = "_scale";
constexpr const char* kZeroPointSuffix = "_zero_point";
constexpr const char* kShapeSuffix = "_shape";

// Fields whose presence (other than null, false, empty) means something that the packed codes alone do not say.
constexpr auto kMustBeAbsent = std::to_array<const char*>({"sparsity_config", "transform_config", "kv_cache_scheme"});
constexpr auto kMustBeAbsentInGroup = std::to_array<const char*>({"input_activations", "output_activations"});

struct ForeignPart {
  std::string_view suffix;
  std::string_view meaning;
};

constexpr auto kForeignParts = std::to_array<ForeignPart>({
    {".weight_g_idx", "activation ordering (g_idx)"},
    {".weight_global_scale", "a global scale"},
    {".input_global_scale", "activation quantisation"},
    {".input_scale", "activation quantisation"},
    {".input_zero_point", "activation quantisation"},
    {".k_scale", "a quantised KV cache"},
    {".v_scale", "a quantised KV cache"},
});

struct Group {
  const Scheme* scheme;
  std::int64_t group_size;  // 0: one scale a row
};

bool is_set(const std::optional<JsonField>& field) {
  return field && !field->json().empty() && field->json() != nlohmann::json(false);
}

void refuse_set(const JsonField& object, std::span<const char* const> keys) {
  for (const char* key : keys) {
    if (const auto field = object.find(key); is_set(field)) fail_unsupported(field->path(), "this setting");
  }
}

void want_text(const JsonField& field, std::string_view wanted) {
  if (field.string() != wanted) fail_unsupported(field.path(), in_quotes(field.string()));
}

// The integer scheme of so many bits, with zero points or without.
const Scheme* integer_scheme(const JsonField& weights) {
  const JsonField bits = weights.at("num_bits");
  const auto symmetric = weights.find("symmetric");
  const bool has_zero_point = symmetric && !symmetric->boolean();
  const std::int64_t wanted = bits.integer(1, 64);
  const auto row = std::ranges::find_if(schemes(), [&](const Scheme& scheme) {
    return !scheme.codebook && scheme.bits == wanted && scheme.has_zero_point == has_zero_point;
  });
  if (row == schemes().end())
    fail_unsupported(bits.path(), std::to_string(wanted) + " bits" + (has_zero_point ? " with zero points" : ""));
  return &*row;
}

Group read_group(const JsonField& group) {
  refuse_set(group, kMustBeAbsentInGroup);
  if (const auto format = group.find("format")) want_text(*format, "pack-quantized");
  const JsonField weights = group.at("weights");
  if (const auto type = weights.find("type")) want_text(*type, "int");
  if (const auto dynamic = weights.find("dynamic"); is_set(dynamic))
    fail_unsupported(dynamic->path(), "dynamic quantisation");
  // "weight" (or "static") only ordered the calibration; the stored columns are in place.
  const auto order = weights.find("actorder");
  if (is_set(order) && order->string() != "weight" && order->string() != "static") {
    fail_unsupported(order->path(), "activation ordering " + in_quotes(order->string()));
  }
  const JsonField strategy = weights.at("strategy");
  if (strategy.string() == "channel") return {integer_scheme(weights), 0};
  want_text(strategy, "group");
  return {integer_scheme(weights), weights.at("group_size").integer(1)};
}

std::vector<Group> read_groups(const JsonField& config) {
  want_text(config.at("format"), "pack-quantized");
  if (const auto status = config.find("quantization_status")) want_text(*status, "compressed");
  refuse_set(config, kMustBeAbsent);
  std::vector<Group> groups;
  for (const auto& [name, field] : config.at("config_groups").members()) groups.push_back(read_group(field));
  return groups;
}

// The stored [out_features, in_features]. Units: values.
std::array<std::int64_t, 2> read_shape(const Checkpoint& checkpoint, const StoredTensor& tensor,
                                       const std::string& where) {
  std::array<std::int64_t, 2> shape{};
  if (tensor.dtype != Dtype::kInt64 || tensor.size_bytes != sizeof shape) {
    throw Error(ErrorCode::kCorrupt, where + ": " + in_quotes(tensor.name) + " is not two int64");
  }
  read_stored(checkpoint, tensor, 0, std::as_writable_bytes(std::span(shape)));
  if (shape[0] < 0 || shape[1] < 0)
    throw Error(ErrorCode::kCorrupt, where + ": it holds the shape " + printable(shape));
  return shape;
}

const StoredTensor& part(const Checkpoint& checkpoint, const std::string& name, const std::string& where) {
  if (const StoredTensor* found = checkpoint.find(name)) return *found;
  throw Error(ErrorCode::kCorrupt,
              where + ": its part " + in_quotes(name) + " is missing; download the checkpoint again");
}

bool describes(const Group& group, const StoredTensor& codes, const StoredTensor& scale,
               std::array<std::int64_t, 2> shape) {
  const std::int64_t in = shape[1];
  const std::int64_t group_size = group.group_size == 0 ? in : group.group_size;
  if (group_size == 0 || in % group_size != 0 || in > (std::int64_t{1} << 60)) return false;
  return codes.shape == std::vector{shape[0], packed_row_bytes(*group.scheme, in) / 4} &&
         scale.shape == std::vector{shape[0], in / group_size};
}

TensorRecord packed_record(const Checkpoint& checkpoint, const StoredTensor& codes, const std::vector<Group>& groups) {
  TensorRecord out;
  out.name = codes.name.substr(0, codes.name.size() - std::string_view(kPackedSuffix).size());
  const std::string where =
      printable_path(checkpoint.data_files[codes.file]->path()) + ": tensor " + in_quotes(out.name);
  const StoredTensor& scale = part(checkpoint, out.name + kScaleSuffix, where);
  const StoredTensor& shape_part = part(checkpoint, out.name + kShapeSuffix, where);
  const auto shape = read_shape(checkpoint, shape_part, where);
  const auto group = std::ranges::find_if(groups, [&](const Group& g) { return describes(g, codes, scale, shape); });
  if (group == groups.end()) {
    throw Error(ErrorCode::kCorrupt, where + ": shape " + printable(shape) + ", codes " + printable(codes.shape) +
                                         " and scales " + printable(scale.shape) +
                                         " fit no group of config.json's quantization_config");
  }
  if (!is_weight_dtype(scale.dtype)) fail_unsupported(where, std::string(name(scale.dtype)) + " scales");
  out.shape.assign(shape.begin(), shape.end());
  out.scheme = group->scheme;
  out.group_size = group->group_size == 0 ? shape[1] : group->group_size;
  out.scale_dtype = scale.dtype;
  out.parts[Part::kCodes] = codes.name;
  out.parts[Part::kScale] = scale.name;
  out.parts[Part::kShape] = shape_part.name;
  out.size_bytes = codes.size_bytes + scale.size_bytes + shape_part.size_bytes;
  if (out.scheme->has_zero_point) {
    const StoredTensor& zero_point = part(checkpoint, out.name + kZeroPointSuffix, where);
    out.parts[Part::kZeroPoint] = zero_point.name;
    out.size_bytes += zero_point.size_bytes;
  } else if (checkpoint.find(out.name + kZeroPointSuffix)) {
    fail_unsupported(where, "zero points in " + in_quotes(out.name + kZeroPointSuffix) + " beside symmetric codes");
  }
  return out;
}

bool is_packed(const StoredTensor& tensor) { return tensor.name.ends_with(".weight_packed"); }

// A tensor that an earlier record took as its part.
bool is_side_part(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  for (const std::string_view suffix : {kScaleSuffix, kZeroPointSuffix, kShapeSuffix}) {
    if (!tensor.name.ends_with(suffix)) continue;
    const std::string owner = tensor.name.substr(0, tensor.name.size() - suffix.size());
    if (owner.ends_with(".weight") && checkpoint.find(owner + kPackedSuffix)) return true;
  }
  return false;
}

void refuse_foreign_part(const StoredTensor& tensor) {
  for (const ForeignPart& row : kForeignParts) {
    if (tensor.name.ends_with(row.suffix))
      fail_unsupported("tensor " + in_quotes(tensor.name), std::string(row.meaning));
  }
}

}  // namespace

std::vector<TensorRecord> read_compressed_tensors(Checkpoint& checkpoint, const JsonField& config) {
  const std::vector<Group> groups = read_groups(config);
  std::vector<TensorRecord> out;
  for (const StoredTensor& tensor : checkpoint.tensors) {
    refuse_foreign_part(tensor);
    if (is_packed(tensor)) {
      out.push_back(packed_record(checkpoint, tensor, groups));
    } else if (!is_side_part(checkpoint, tensor)) {
      out.push_back(dense_record(checkpoint, tensor));
    }
  }
  return out;
}

}  // namespace halfbyte::files
