#include "convert/small_parts.h"

#include <nlohmann/json.hpp>

#include "loader/files/matrix_shape.h"
#include "loader/files/packed_parts.h"

namespace halfbyte::convert {
namespace {

using files::Part;

template <class Range>
std::vector<std::byte> bytes_of(const Range& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> zero_point_bytes(const files::StoredTensor& tensor, const PlannedTensor& planned,
                                        const GroupExtras& extras) {
  const auto [rows, columns] = files::matrix_shape(tensor.shape);
  const std::int64_t groups = columns / planned.group_size;
  std::vector<std::uint32_t> words(static_cast<std::size_t>(zero_point_words(rows) * groups));
  quant::pack_zero_points(extras.zero_points.data(), rows, groups, words.data());
  return bytes_of(words);
}

// JSON, padded with spaces, so that its place is known before the offset is. Source: bitsandbytes, functional.py,
// QuantState.as_dict.
std::vector<std::byte> quant_state(const files::StoredTensor& tensor, const PlannedTensor& planned,
                                   const GroupExtras& extras) {
  nlohmann::ordered_json state{{"quant_type", planned.scheme->name},
                               {"blocksize", planned.group_size},
                               {"dtype", name(tensor.dtype)},
                               {"shape", tensor.shape}};
  if (extras.nested_offset) {
    state["nested_blocksize"] = kNestedBlock;
    state["nested_dtype"] = "float32";
    state["nested_offset"] = static_cast<double>(*extras.nested_offset);
  }
  std::string text = state.dump();
  text.resize(static_cast<std::size_t>(files::kQuantStateBytes), ' ');
  return bytes_of(text);
}

}  // namespace

std::vector<SmallPart> small_parts(const files::StoredTensor& tensor, const PlannedTensor& planned,
                                   const GroupExtras& extras) {
  if (planned.scheme->layout == Layout::kPackQuantized) {
    std::vector<SmallPart> out{{Part::kShape, bytes_of(tensor.shape)}};
    if (planned.scheme->decode == Decode::kZeroPoint)
      out.push_back({Part::kZeroPoint, zero_point_bytes(tensor, planned, extras)});
    if (planned.scheme->decode == Decode::kOffset) out.push_back({Part::kOffset, extras.offsets});
    return out;
  }
  std::vector<SmallPart> out{{Part::kCodebook, bytes_of(*planned.scheme->codebook)},
                             {Part::kState, quant_state(tensor, planned, extras)}};
  if (planned.is_nested) {
    out.push_back({Part::kNestedScale, bytes_of(extras.nested_scales)});
    out.push_back({Part::kNestedCodebook, bytes_of(quant::nested_codebook())});
  }
  return out;
}

}  // namespace halfbyte::convert
