#include "convert/small_parts.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <halfbyte/quantize.h>

#include "loader/files/matrix_shape.h"

namespace halfbyte::convert {
namespace {

using files::TensorRecord;
using Bytes = std::vector<std::byte>;

template <class Range>
Bytes bytes_of(const Range& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

Bytes shape(const TensorRecord& record) { return bytes_of(record.shape); }
Bytes codebook(const TensorRecord& record) { return bytes_of(*record.scheme->codebook); }
Bytes nested_codebook(const TensorRecord&) { return bytes_of(quant::nested_codebook()); }

// JSON, padded with spaces, so that its place is known before the offset is. Source: bitsandbytes, functional.py,
// QuantState.as_dict.
Bytes quant_state(const TensorRecord& record) {
  nlohmann::ordered_json state{{"quant_type", record.scheme->name},
                               {"blocksize", record.group_size},
                               {"dtype", name(record.original_dtype.value_or(Dtype::kFloat32))},
                               {"shape", record.shape}};
  if (record.nested_offset) {
    state["nested_blocksize"] = kNestedBlock;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = static_cast<double>(*record.nested_offset);
  }
  std::string text = state.dump();
  text.resize(static_cast<std::size_t>(files::kQuantStateBytes), ' ');
  return bytes_of(text);
}

Bytes zero_point_words(const TensorRecord& record, std::span<const std::byte> gathered) {
  const auto [rows, columns] = files::matrix_shape(record.shape);
  const std::int64_t groups = columns / record.group_size;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(halfbyte::zero_point_words(rows) * groups));
  quant::pack_zero_points(reinterpret_cast<const std::uint8_t*>(gathered.data()), rows, groups, words.data());
  return bytes_of(words);
}

Bytes as_gathered(const TensorRecord&, std::span<const std::byte> gathered) {
  return {gathered.begin(), gathered.end()};
}

struct ConstantPart {
  Part part;
  Bytes (*make)(const TensorRecord& record);
};
constexpr ConstantPart kConstants[] = {{Part::kShape, shape},
                                       {Part::kCodebook, codebook},
                                       {Part::kNestedCodebook, nested_codebook},
                                       {Part::kState, quant_state}};

struct GatheredPart {
  Part part;
  std::uint64_t groups;  // Growth's; 0: those of a row
  std::uint64_t bytes;   // 0: as many as a scale has
  Bytes (*make)(const TensorRecord& record, std::span<const std::byte> gathered);
};
constexpr GatheredPart kGathered[] = {{Part::kZeroPoint, 1, 1, zero_point_words},
                                      {Part::kNestedScale, kNestedBlock, sizeof(float), as_gathered},
                                      {Part::kOffset, 1, 0, as_gathered},
                                      {Part::kRowScale, 0, 2, as_gathered}};

}  // namespace

std::vector<Growth> gathered_parts(const TensorRecord& record) {
  std::vector<Growth> out;
  for (const GatheredPart& row : kGathered) {
    if (!record.parts.has(row.part)) continue;
    const auto scale_bytes = static_cast<std::uint64_t>(size_bytes(record.scale_dtype));
    const auto row_groups = static_cast<std::uint64_t>(record.shape.back() / record.group_size);
    out.push_back({row.part, row.groups > 0 ? row.groups : row_groups, row.bytes > 0 ? row.bytes : scale_bytes});
  }
  return out;
}

GatheredParts::GatheredParts(const TensorRecord& record, std::uint64_t groups) : growths_(gathered_parts(record)) {
  for (const Growth& each : growths_)
    bytes_[static_cast<std::size_t>(each.part)].resize((groups + each.groups - 1) / each.groups * each.bytes);
}

std::byte* GatheredParts::at(Part part, std::uint64_t group) noexcept {
  const auto each = std::ranges::find(growths_, part, &Growth::part);
  if (each == growths_.end()) return nullptr;
  return bytes_[static_cast<std::size_t>(part)].data() + group / each->groups * each->bytes;
}

std::vector<SmallPart> constant_parts(const TensorRecord& record) {
  std::vector<SmallPart> out;
  for (const ConstantPart& row : kConstants) {
    if (record.parts.has(row.part)) out.push_back({row.part, row.make(record)});
  }
  return out;
}

std::vector<SmallPart> small_parts(const TensorRecord& record, const GatheredParts& gathered) {
  std::vector<SmallPart> out = constant_parts(record);
  for (const GatheredPart& row : kGathered) {
    if (record.parts.has(row.part)) out.push_back({row.part, row.make(record, gathered.bytes(row.part))});
  }
  return out;
}

}  // namespace halfbyte::convert
