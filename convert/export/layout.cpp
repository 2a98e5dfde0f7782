#include "convert/export/layout.h"

#include <algorithm>

#include "convert/small_parts.h"
#include "loader/files/matrix_shape.h"
#include "loader/files/packed_parts.h"

namespace halfbyte::convert {
namespace {

using files::Part;
using files::TensorRecord;

// Of a part that rows are written to; empty: of the block it has none.
std::span<const std::byte> bytes_of(const PackedBlock& block, Part part) {
  if (part == Part::kCodes) return block.codes;
  if (part == Part::kScale) return block.scales;
  return part == Part::kZeroPoint ? std::as_bytes(std::span(block.zero_points)) : std::span<const std::byte>();
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
  const auto specs = files::packed_parts(result);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::span<const std::byte> bytes = bytes_of(block, specs[i].part);
    if (bytes.empty()) continue;
    const std::int64_t unit = rows_a_unit(find_part(*result.scheme, specs[i].part)->shape);
    const auto units = static_cast<std::uint64_t>((block.rows + unit - 1) / unit);
    write(i, static_cast<std::uint64_t>(block.first_row / unit) * (bytes.size() / units), bytes);
  }
  if (block.first_row == 0) write_constants(result, write);
}

}  // namespace

const ExportLayout kOwnLayout{own_parts, write_own};

}  // namespace halfbyte::convert
