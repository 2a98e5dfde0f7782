#include "loader/files/formats/gguf/pieces.h"

#include <algorithm>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/tensor_bytes.h"
#include "loader/files/gathered_units.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"
#include "loader/files/row_bytes.h"

namespace halfbyte::files {
namespace {

using Pieces = std::vector<GgufPiece>;

std::uint64_t count_of(const std::vector<std::int64_t>& shape) {
  std::uint64_t out = 1;
  for (const std::int64_t length : shape) out *= static_cast<std::uint64_t>(length);
  return out;
}

// Of a row; of what has no rows, all.
std::uint64_t columns_of(const GgufPiece& piece) {
  return piece.shape.empty() ? 1 : static_cast<std::uint64_t>(piece.shape.back());
}

// Values of a unit of the layout, in transformers' order.
std::uint64_t unit_of(const GgufPiece& piece) {
  if (piece.layout.unit > 0) return static_cast<std::uint64_t>(piece.layout.unit);
  if (piece.layout.is_transposed) return static_cast<std::uint64_t>(piece.shape[piece.shape.size() - 2]);
  return piece.shape.size() < 2 ? 1 : columns_of(piece);
}

// Units are whole blocks, so that codes and scales go where their values go.
bool has_whole_blocks(const GgufPiece& piece) {
  return piece.layout.is_plain() || (!piece.layout.is_transposed && unit_of(piece) % piece.type->block_values == 0);
}

bool are_packed(const Pieces& pieces) {
  const GgmlType* type = pieces.front().type;
  return std::ranges::all_of(pieces, [&](const GgufPiece& piece) {
    const bool is_matrix = piece.shape.size() == 2 || piece.shape.size() == 3;
    return piece.type == type && type->exact && is_matrix && piece.values == GgufValues::kAsTheyAre &&
           has_whole_blocks(piece);
  });
}

bool are_dense(const Pieces& pieces) {
  return std::ranges::all_of(pieces, [&](const GgufPiece& piece) {
    const std::optional<Dtype> dtype = piece.type->dtype;
    const bool can_lie_so = !piece.layout.is_transposed || (dtype && is_weight_dtype(*dtype));
    return piece.type == pieces.front().type && dtype && piece.values == GgufValues::kAsTheyAre && can_lie_so;
  });
}

std::vector<std::byte> bytes_of_shape(const std::vector<std::int64_t>& shape) {
  const auto bytes = std::as_bytes(std::span(shape));
  return {bytes.begin(), bytes.end()};
}

// Matrices as transformers has them, `width` bytes a value.
std::unique_ptr<TensorBytes> upright(const GgufPiece& piece, std::unique_ptr<TensorBytes> stored, std::uint64_t width) {
  if (!piece.layout.is_transposed) return stored;
  return std::make_unique<TransposedMatrices>(std::move(stored), unit_of(piece), columns_of(piece), width);
}

// Where each unit of a period is.
std::vector<GatheredUnits::Place> places_of(const Pieces& pieces) {
  std::vector<GatheredUnits::Place> out(static_cast<std::size_t>(pieces.front().layout.period), {pieces.size(), 0});
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto& picks = pieces[i].layout.picks;
    for (std::size_t at = 0; at < picks.size(); ++at) out[static_cast<std::size_t>(picks[at])] = {i, at};
  }
  return out;
}

}  // namespace

void GgufWholes::fail(const GgufPiece& piece, ErrorCode code, const std::string& problem) const {
  throw Error(code, printable_path(checkpoint_.data_files[piece.file]->path()) + ": tensor " +
                        in_quotes(piece.gguf_name) + problem);
}

void GgufWholes::check(const std::string& name, const std::vector<std::int64_t>& shape, const Pieces& pieces) const {
  std::uint64_t count = 0;
  for (const GgufPiece& piece : pieces) {
    const std::uint64_t unit = unit_of(piece), values = count_of(piece.shape);
    count += values;
    if (piece.layout.is_plain()) continue;
    const std::uint64_t a_period = unit * piece.layout.picks.size();
    if (piece.layout.is_transposed && piece.shape.size() != 3)
      fail(piece, ErrorCode::kCorrupt, " of shape " + printable(piece.shape) + " is no stack of matrices");
    if (unit != unit_of(pieces.front()) || values % a_period != 0 ||
        values / a_period * unit != count_of(shape) / static_cast<std::uint64_t>(piece.layout.period)) {
      fail(piece, ErrorCode::kCorrupt,
           " of shape " + printable(piece.shape) + " is no share of " + in_quotes(name) + " of shape " +
               printable(shape));
    }
  }
  if (count != count_of(shape))
    fail(pieces.front(), ErrorCode::kCorrupt, ": others that are " + in_quotes(name) + " with it are missing");
  if (pieces.size() == 1 && pieces.front().layout.is_plain()) return;
  const auto is_missing = [&](const GatheredUnits::Place& place) { return place.source == pieces.size(); };
  if (std::ranges::any_of(places_of(pieces), is_missing))
    fail(pieces.front(), ErrorCode::kCorrupt, ": others that are " + in_quotes(name) + " with it are missing");
}

void GgufWholes::add(const std::string& name, const std::vector<std::int64_t>& shape, const Pieces& pieces,
                     Translation& translation) {
  check(name, shape, pieces);
  if (are_packed(pieces)) return add_packed(name, shape, pieces, translation);
  are_dense(pieces) ? add_dense(name, shape, pieces, translation) : add_values(name, shape, pieces, translation);
}

std::unique_ptr<TensorBytes> GgufWholes::gathered(
    const Pieces& pieces, std::uint64_t values_each, std::uint64_t bytes_each,
    const std::function<std::unique_ptr<TensorBytes>(const GgufPiece&)>& make) const {
  if (pieces.front().layout.is_plain()) return make(pieces.front());
  std::vector<std::unique_ptr<TensorBytes>> sources;
  for (const GgufPiece& piece : pieces) sources.push_back(make(piece));
  return std::make_unique<GatheredUnits>(std::move(sources), places_of(pieces),
                                         unit_of(pieces.front()) / values_each * bytes_each);
}

std::unique_ptr<TensorBytes> GgufWholes::converted(const GgufPiece& piece, ConvertBlocks* convert,
                                                   std::uint64_t bytes_each) const {
  return std::make_unique<ConvertedBlocks>(checkpoint_.data_files[piece.file], *piece.type,
                                           BlockRange{piece.offset, count_of(piece.shape) / piece.type->block_values},
                                           convert, bytes_each);
}

void GgufWholes::add_dense(const std::string& name, const std::vector<std::int64_t>& shape, const Pieces& pieces,
                           Translation& translation) {
  const GgufPiece& first = pieces.front();
  const std::uint64_t width = first.type->block_bytes;
  if (first.layout.is_plain()) {
    checkpoint_.tensors.push_back({name, *first.type->dtype, shape, first.file, first.offset, count_of(shape) * width});
    return;
  }
  translation.add(name, *first.type->dtype, shape, gathered(pieces, 1, width, [&](const GgufPiece& piece) {
                    const RowOrder order{static_cast<std::int64_t>(count_of(piece.shape))};
                    return upright(
                        piece,
                        std::make_unique<OrderedRows>(checkpoint_.data_files[piece.file], piece.offset, width, order),
                        width);
                  }));
}

void GgufWholes::add_packed(const std::string& name, const std::vector<std::int64_t>& shape, const Pieces& pieces,
                            Translation& translation) {
  const GgmlType& type = *pieces.front().type;
  const ExactScheme& exact = *type.exact;
  TensorRecord record;
  record.name = name;
  record.shape = shape;
  record.scheme = &scheme(exact.scheme);
  record.group_size = static_cast<std::int64_t>(type.block_values);
  record.scale_dtype = exact.scale_dtype;
  record.parts = packed_part_names(record);
  const std::int64_t columns = shape.back(), rows = static_cast<std::int64_t>(count_of(shape)) / columns;
  const std::int64_t row_bytes = packed_row_bytes(*record.scheme, columns), groups = columns / record.group_size;
  const auto add_part = [&](Part part, Dtype dtype, std::vector<std::int64_t> part_shape, ConvertBlocks* convert,
                            std::uint64_t bytes_each) {
    translation.add(record.parts[part], dtype, std::move(part_shape),
                    gathered(pieces, type.block_values, bytes_each,
                             [&](const GgufPiece& piece) { return converted(piece, convert, bytes_each); }));
  };
  add_part(Part::kCodes, Dtype::kInt32, {rows, row_bytes / 4}, exact.codes,
           static_cast<std::uint64_t>(row_bytes / groups));
  add_part(Part::kScale, exact.scale_dtype, {rows, groups}, exact.scales, 2);
  translation.add(record.parts[Part::kShape], Dtype::kInt64, {static_cast<std::int64_t>(shape.size())},
                  std::make_unique<ConstantBytes>(bytes_of_shape(shape)));
  if (exact.offsets) add_part(Part::kOffset, exact.scale_dtype, {rows, groups}, exact.offsets, 2);
  const std::int64_t halves = exact.offsets ? 2 : 1;  // of each group
  record.size_bytes =
      static_cast<std::uint64_t>(rows * (row_bytes + 2 * halves * groups)) + shape.size() * sizeof(std::int64_t);
  records_.push_back(std::move(record));
}

void GgufWholes::add_values(const std::string& name, const std::vector<std::int64_t>& shape, const Pieces& pieces,
                            Translation& translation) {
  for (const GgufPiece& piece : pieces) {
    if (!piece.type->to_float32)
      fail(piece, ErrorCode::kUnsupported, " is of type " + std::string(piece.type->name) + ", which it cannot be");
  }
  translation.add(name, Dtype::kFloat32, shape,
                  gathered(pieces, 1, sizeof(float), [&](const GgufPiece& piece) -> std::unique_ptr<TensorBytes> {
                    auto out = converted(piece, piece.type->to_float32, piece.type->block_values * sizeof(float));
                    if (piece.values != GgufValues::kAsTheyAre)
                      out = std::make_unique<MappedValues>(std::move(out), piece.values);
                    return upright(piece, std::move(out), sizeof(float));
                  }));
  TensorRecord record;
  record.name = name;
  record.shape = shape;
  const GgmlType* const type = pieces.front().type;
  const bool is_of_one = std::ranges::all_of(pieces, [&](const GgufPiece& piece) { return piece.type == type; });
  if (is_of_one && type->dtype) record.original_dtype = type->dtype;
  record.parts[Part::kCodes] = name;
  record.size_bytes = count_of(shape) * sizeof(float);
  records_.push_back(std::move(record));
  const auto block = std::ranges::find_if(pieces, [](const GgufPiece& piece) { return !piece.type->dtype; });
  if (block != pieces.end()) ++dequantised_[block->type->name];
}

}  // namespace halfbyte::files
