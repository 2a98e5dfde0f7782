#include "convert/export/layout.h"

#include <algorithm>

#include "convert/small_parts.h"
#include "loader/files/matrix_shape.h"
#include "loader/files/packed_parts.h"

namespace halfbyte::convert {
namespace {

using files::Part;
using files::TensorRecord;

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<OutputTensor> own_parts(const TensorRecord& result) {
  std::vector<OutputTensor> out;
  const files::TensorParts names = files::packed_part_names(result);
  for (const files::PartSpec& spec : files::packed_parts(result)) {
    out.push_back(output_tensor(names[spec.part], spec.dtype, spec.written_shape()));
  }
  return out;
}

// Parts that are the same whatever the weights.
void write_constants(const TensorRecord& result, const WritePart& write) {
  const auto specs = files::packed_parts(result);
  for (const SmallPart& part : constant_parts(result)) {
    const auto at = std::ranges::find(specs, part.part, &files::PartSpec::part);
    write(static_cast<std::size_t>(at - specs.begin()), 0, part.bytes);
  }
}

void write_own(const TensorRecord& result, const ExportFacts&, const PackedBlock& block, const WritePart& write) {
  const std::int64_t columns = files::matrix_shape(result.shape).columns;
  const auto first = static_cast<std::uint64_t>(block.first_row);
  const auto groups = static_cast<std::uint64_t>(columns / result.group_size);
  write(0, first * static_cast<std::uint64_t>(packed_row_bytes(*result.scheme, columns)), block.codes);
  write(1, first * groups * static_cast<std::uint64_t>(size_bytes(result.scale_dtype)), block.scales);
  if (result.scheme->decode == Decode::kZeroPoint) write(2, first / 8 * groups * 4, bytes_of(block.zero_points));
  if (block.first_row == 0) write_constants(result, write);
}

}  // namespace

const ExportLayout kOwnLayout{own_parts, write_own};

}  // namespace halfbyte::convert
