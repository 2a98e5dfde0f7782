#include "loader/files/methods/compressed_tensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/derive.h"
#include "loader/files/methods/computed_tensors.h"
#include "loader/files/methods/float4.h"
#include "loader/files/methods/grouped_values.h"
#include "loader/files/methods/sorted_columns.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"
#include "loader/files/row_bytes.h"
#include "models/json/field.h"

namespace halfbyte::files {
namespace {

constexpr const char* kPackedSuffix = "_packed";
constexpr const char* kScaleSuffix = "_scale";
constexpr const char* kZeroPointSuffix = "_zero_point";
constexpr const char* kShapeSuffix = "_shape";
constexpr const char* kOrderSuffix = "_g_idx";

// Fields whose presence (other than null, false, empty) means something that the packed codes alone do not say.
constexpr auto kMustBeAbsent = std::to_array<const char*>({"sparsity_config", "transform_config", "kv_cache_scheme"});
constexpr auto kOrders = std::to_array<std::string_view>({"weight", "static", "group", "dynamic"});
constexpr auto kMustBeAbsentInGroup = std::to_array<const char*>({"input_activations", "output_activations"});

struct ForeignPart {
  std::string_view suffix;
  std::string_view meaning;
};

constexpr auto kForeignParts = std::to_array<ForeignPart>({
    {".weight_global_scale", "a global scale"},
    {".input_global_scale", "activation quantisation"},
    {".input_scale", "activation quantisation"},
    {".input_zero_point", "activation quantisation"},
    {".k_scale", "a quantised KV cache"},
    {".v_scale", "a quantised KV cache"},
});

struct Group {
  int bits;  // 4 or 8
  bool has_zero_point;
  const Scheme* scheme;     // null: none holds it, the values are computed
  std::int64_t group_size;  // 0: one scale a row

  std::int64_t packed_words(std::int64_t values) const noexcept { return (values + 32 / bits - 1) / (32 / bits); }
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

Group integer_group(const JsonField& weights, std::int64_t group_size) {
  const JsonField bits = weights.at("num_bits");
  const auto symmetric = weights.find("symmetric");
  const bool has_zero_point = symmetric && !symmetric->boolean();
  const std::int64_t wanted = bits.integer(1, 64);
  if (wanted != 4 && wanted != 8) fail_unsupported(bits.path(), std::to_string(wanted) + " bits");
  const auto row = std::ranges::find_if(schemes(), [&](const Scheme& scheme) {
    return scheme.bits == wanted && scheme.decode == (has_zero_point ? Decode::kZeroPoint : Decode::kSymmetric);
  });
  return {static_cast<int>(wanted), has_zero_point, row == schemes().end() ? nullptr : &*row, group_size};
}

// `is_mixed`: every group says its format.
Group read_group(const JsonField& group, bool is_mixed) {
  refuse_set(group, kMustBeAbsentInGroup);
  const auto format = is_mixed ? group.at("format") : group.find("format");
  if (format) want_text(*format, "pack-quantized");
  const JsonField weights = group.at("weights");
  if (const auto type = weights.find("type")) want_text(*type, "int");
  if (const auto dynamic = weights.find("dynamic"); is_set(dynamic))
    fail_unsupported(dynamic->path(), "dynamic quantisation");
  // "weight" (or "static") only ordered the calibration; of "group" (or "dynamic") the g_idx beside the codes tells.
  const auto order = weights.find("actorder");
  if (is_set(order) && std::ranges::find(kOrders, order->string()) == kOrders.end())
    fail_unsupported(order->path(), "activation ordering " + in_quotes(order->string()));
  const JsonField strategy = weights.at("strategy");
  if (strategy.string() == "channel") return integer_group(weights, 0);
  want_text(strategy, "group");
  return integer_group(weights, weights.at("group_size").integer(1));
}

std::vector<Group> read_groups(const JsonField& config) {
  const bool is_mixed = config.at("format").string() == "mixed-precision";
  if (!is_mixed) want_text(config.at("format"), "pack-quantized");
  if (const auto status = config.find("quantization_status")) want_text(*status, "compressed");
  refuse_set(config, kMustBeAbsent);
  std::vector<Group> groups;
  for (const auto& [name, field] : config.at("config_groups").members()) groups.push_back(read_group(field, is_mixed));
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

bool describes(const Group& group, const StoredTensor& codes, const StoredTensor& scale,
               std::array<std::int64_t, 2> shape) {
  const std::int64_t in = shape[1];
  const std::int64_t group_size = group.group_size == 0 ? in : group.group_size;
  if (group_size == 0 || in % group_size != 0 || in > (std::int64_t{1} << 60)) return false;
  return codes.shape == std::vector{shape[0], group.packed_words(in)} &&
         scale.shape == std::vector{shape[0], in / group_size};
}

// A packed weight as it is stored.
struct Packed {
  std::string name;
  std::string where;  // for messages
  const StoredTensor& codes;
  const StoredTensor& scale;
  const StoredTensor& shape_part;
  std::array<std::int64_t, 2> shape;
  const Group& group;
  const StoredTensor* zero_point;  // null: there are none
  const StoredTensor* order;       // null: there is none

  std::int64_t group_size() const noexcept { return group.group_size == 0 ? shape[1] : group.group_size; }
  std::int64_t groups() const noexcept { return shape[1] / group_size(); }
};

const StoredTensor* zero_point_of(const Checkpoint& checkpoint, const std::string& name, const Group& group,
                                  const std::string& where) {
  const StoredTensor* found = checkpoint.find(name + kZeroPointSuffix);
  if (group.has_zero_point) return &part_of(checkpoint, name + kZeroPointSuffix, where);
  if (found) fail_unsupported(where, "zero points in " + in_quotes(found->name) + " beside symmetric codes");
  return nullptr;
}

Packed packed_weight(const Checkpoint& checkpoint, const StoredTensor& codes, const std::vector<Group>& groups) {
  const std::string name = codes.name.substr(0, codes.name.size() - std::string_view(kPackedSuffix).size());
  const std::string where = printable_path(checkpoint.data_files[codes.file]->path()) + ": tensor " + in_quotes(name);
  const StoredTensor& scale = part_of(checkpoint, name + kScaleSuffix, where);
  const StoredTensor& shape_part = part_of(checkpoint, name + kShapeSuffix, where);
  const auto shape = read_shape(checkpoint, shape_part, where);
  const auto group = std::ranges::find_if(groups, [&](const Group& g) { return describes(g, codes, scale, shape); });
  if (group == groups.end()) {
    throw Error(ErrorCode::kCorrupt, where + ": shape " + printable(shape) + ", codes " + printable(codes.shape) +
                                         " and scales " + printable(scale.shape) +
                                         " fit no group of config.json's quantization_config");
  }
  if (!is_weight_dtype(scale.dtype)) fail_unsupported(where, std::string(halfbyte::name(scale.dtype)) + " scales");
  return {name,
          where,
          codes,
          scale,
          shape_part,
          shape,
          *group,
          zero_point_of(checkpoint, name, *group, where),
          checkpoint.find(name + kOrderSuffix)};
}

TensorRecord packed_record(const Packed& weight) {
  TensorRecord out;
  out.name = weight.name;
  out.shape.assign(weight.shape.begin(), weight.shape.end());
  out.scheme = weight.group.scheme;
  out.group_size = weight.group_size();
  out.scale_dtype = weight.scale.dtype;
  out.parts[Part::kCodes] = weight.codes.name;
  out.parts[Part::kScale] = weight.scale.name;
  out.parts[Part::kShape] = weight.shape_part.name;
  out.size_bytes = weight.codes.size_bytes + weight.scale.size_bytes + weight.shape_part.size_bytes;
  if (weight.zero_point) {
    out.parts[Part::kZeroPoint] = weight.zero_point->name;
    out.size_bytes += weight.zero_point->size_bytes;
  }
  return out;
}

void want_stored(const StoredTensor& tensor, const std::vector<std::int64_t>& shape, const std::string& where) {
  if (tensor.dtype == Dtype::kInt32 && tensor.shape == shape) return;
  throw Error(ErrorCode::kCorrupt, where + ": " + in_quotes(tensor.name) + " is stored as " +
                                       std::string(name(tensor.dtype)) + " " + printable(tensor.shape) +
                                       ", wanted int32 " + printable(shape));
}

StoredGroups stored_groups(const Checkpoint& checkpoint, const Packed& weight) {
  return {checkpoint.data_files[weight.order->file], weight.order->offset, weight.order->name};
}

// Whether the columns' groups are not simply one behind another. A -1 says that nobody filled them in.
// Source: compressed-tensors, quantization/lifecycle/forward.py: columns are sorted by their group, then cut.
bool has_order(const Checkpoint& checkpoint, const Packed& weight) {
  if (!weight.order) return false;
  want_stored(*weight.order, {weight.shape[1]}, weight.where);
  std::vector<std::int32_t> groups(static_cast<std::size_t>(weight.shape[1]));
  read_stored(checkpoint, *weight.order, 0, std::as_writable_bytes(std::span(groups)));
  if (std::ranges::find(groups, -1) != groups.end()) return false;
  groups = read_groups(stored_groups(checkpoint, weight), weight.shape[1], weight.groups());
  if (std::ranges::is_sorted(groups)) return false;
  if (have_equal_sizes(groups, weight.groups())) return true;
  throw Error(ErrorCode::kCorrupt, weight.where + ": " + in_quotes(weight.order->name) +
                                       " has groups of other sizes than " + std::to_string(weight.group_size()));
}

// The bytes of a stored tensor, in units of its rows.
std::unique_ptr<TensorBytes> rows_of(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  const auto rows = static_cast<std::uint64_t>(tensor.shape[0]);
  return std::make_unique<OrderedRows>(checkpoint.data_files[tensor.file], tensor.offset, tensor.size_bytes / rows,
                                       RowOrder{tensor.shape[0]});
}

// The codes with their columns one group behind another, and the order, in the place of the codes that are stored.
void sort_columns(const Checkpoint& checkpoint, const Packed& weight, TensorRecord& record, ComputedTensors& computed) {
  if (weight.shape[0] < 1) fail_unsupported(weight.where, "an empty weight");
  const ColumnGroups groups{stored_groups(checkpoint, weight), weight.shape[1], weight.groups()};
  computed.consume(weight.codes);
  computed.add_part(weight.codes.name, Dtype::kInt32, weight.codes.shape,
                    std::make_unique<SortedCodes>(rows_of(checkpoint, weight.codes), groups, weight.group.bits),
                    weight.codes.file);
  record.parts[Part::kColumnOrder] = part_name(record, Part::kColumnOrder);
  auto order = std::make_unique<SortedOrder>(groups);
  record.size_bytes += order->size_bytes();
  computed.add_part(record.parts[Part::kColumnOrder], Dtype::kInt32, {weight.shape[1]}, std::move(order),
                    weight.codes.file);
}

// The values of a weight that no scheme holds, in the place of its parts.
void add_values(const Checkpoint& checkpoint, const Packed& weight, bool is_ordered, ComputedTensors& computed) {
  if (weight.shape[0] < 1 || weight.shape[1] < 1) fail_unsupported(weight.where, "an empty weight");
  GroupedWeight out{weight.group.bits,
                    weight.shape[0],
                    weight.shape[1],
                    weight.groups(),
                    weight.group_size(),
                    {},
                    weight.scale.dtype,
                    rows_of(checkpoint, weight.codes),
                    rows_of(checkpoint, weight.scale),
                    {}};
  if (is_ordered) out.order = stored_groups(checkpoint, weight);
  if (weight.zero_point) {
    want_stored(*weight.zero_point, {weight.group.packed_words(weight.shape[0]), weight.groups()}, weight.where);
    out.zero_points = rows_of(checkpoint, *weight.zero_point);
  }
  for (const StoredTensor* tensor : {&weight.codes, &weight.scale, &weight.shape_part, weight.zero_point}) {
    if (tensor) computed.consume(*tensor);
  }
  computed.add_values(weight.name, {weight.shape[0], weight.shape[1]}, std::make_unique<GroupedValues>(std::move(out)),
                      weight.codes.file);
}

bool is_packed(const StoredTensor& tensor) { return tensor.name.ends_with(".weight_packed"); }

void refuse_foreign_part(const StoredTensor& tensor) {
  for (const ForeignPart& row : kForeignParts) {
    if (tensor.name.ends_with(row.suffix))
      fail_unsupported("tensor " + in_quotes(tensor.name), std::string(row.meaning));
  }
}

}  // namespace

std::vector<TensorRecord> read_compressed_tensors(Checkpoint& checkpoint, const JsonField& config) {
  if (is_compressed_float4(config)) return read_compressed_float4(checkpoint, config);
  const std::vector<Group> groups = read_groups(config);
  ComputedTensors computed(checkpoint);
  std::int64_t computed_count = 0, ordered_count = 0;
  for (const StoredTensor& tensor : checkpoint.tensors) {
    refuse_foreign_part(tensor);
    if (!is_packed(tensor)) continue;
    const Packed weight = packed_weight(checkpoint, tensor, groups);
    const bool is_ordered = has_order(checkpoint, weight);
    if (weight.order) computed.consume(*weight.order);
    if (weight.group.scheme) {
      TensorRecord record = packed_record(weight);
      if (is_ordered) {
        sort_columns(checkpoint, weight, record, computed);
        ++ordered_count;
      }
      computed.add_record(std::move(record));
      continue;
    }
    add_values(checkpoint, weight, is_ordered, computed);
    ++computed_count;
  }
  computed.finish();
  if (ordered_count > 0)
    checkpoint.notes.push_back(std::to_string(ordered_count) +
                               " tensors have their columns grouped in an order of their own (g_idx); the order is "
                               "kept beside the codes, and activations are put into it");
  if (computed_count > 0) {
    checkpoint.notes.push_back(std::to_string(computed_count) +
                               " tensors are read as float32 (32 bits a weight) with the same values: no scheme here "
                               "holds 8 bits with zero points; to quantise them is to do it a second time");
  }
  return computed.take_records();
}

}  // namespace halfbyte::files
