#include "convert/gguf/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "convert/export/dense_values.h"
#include "loader/files/finite.h"
#include "loader/files/printable.h"
#include "loader/files/tensor_reader.h"

namespace halfbyte::convert {
namespace {

using files::Part;
using files::TensorRecord;

constexpr std::int64_t kPieceRows = 64;

bool is_finite_float16(const std::byte* number) noexcept {
  std::uint16_t bits = 0;
  std::memcpy(&bits, number, sizeof bits);
  return (bits & 0x7C00U) != 0x7C00U;
}

DenseTarget target_of(const files::Checkpoint& source, const GgufOutput& tensor, const TensorRecord& record) {
  DenseTarget out = dense_target(source, record, tensor.type->dtype.value_or(Dtype::kFloat32));
  if (tensor.instead != files::GgufValues::kAsTheyAre) out.through.reset();  // it would round what is not written
  const bool is_float16 = tensor.type->dtype != Dtype::kBfloat16;
  out.remedy = "give " + Option::kType + (is_float16 ? " F32 or BF16" : " F32");
  return out;
}

// Some rows of one source in the type of the result.
class RowWriter {
 public:
  RowWriter(const files::Checkpoint& source, const GgufOutput& tensor, const TensorRecord& record)
      : source_(source),
        tensor_(tensor),
        record_(record),
        target_(target_of(source, tensor, record)),
        reader_(source, record),
        columns_(static_cast<std::size_t>(tensor.row_values())),
        source_columns_(tensor.shape.size() > 1 ? record.shape.back() : 1) {}

  std::size_t row_bytes() const { return columns_ / tensor_.type->block_values * tensor_.type->block_bytes; }

  void write(std::int64_t row, std::byte* out) {
    if (tensor_.is_exact) return write_codes(source_row(row), out);
    values_.resize(columns_);
    read_values(row);
    write_values(row, out);
  }

 private:
  bool orders_columns() const { return tensor_.layout.unit > 0 && tensor_.shape.size() > 1; }

  // Where row `row` of the result stands in the source.
  std::int64_t source_row(std::int64_t row) const {
    const auto& [period, picks, unit, is_stack, is_transposed] = tensor_.layout;
    if (picks.empty() || orders_columns()) return row;
    return row / std::ssize(picks) * period + picks[static_cast<std::size_t>(row % std::ssize(picks))];
  }

  void read_values(std::int64_t row) {
    if (tensor_.layout.is_transposed) return read_column(row);
    if (!orders_columns()) return reader_.read(source_row(row) * source_columns_, values_);
    whole_.resize(static_cast<std::size_t>(source_columns_));
    reader_.read(row * source_columns_, whole_);
    put_units(std::as_bytes(std::span(whole_)), std::as_writable_bytes(std::span(values_)));
  }

  // A column of one of the source's matrices, each of which is read once.
  void read_column(std::int64_t row) {
    const auto& picks = tensor_.layout.picks;
    const std::int64_t matrix = row / source_columns_, column = row % source_columns_;
    if (matrix != held_matrix_) {
      whole_.resize(picks.size() * static_cast<std::size_t>(source_columns_));
      const auto width = static_cast<std::size_t>(source_columns_);
      for (std::size_t i = 0; i < picks.size(); ++i) {
        reader_.read((matrix * tensor_.layout.period + picks[i]) * source_columns_,
                     std::span(whole_).subspan(i * width, width));
      }
      held_matrix_ = matrix;
    }
    for (std::size_t i = 0; i < values_.size(); ++i)
      values_[i] = whole_[i * static_cast<std::size_t>(source_columns_) + static_cast<std::size_t>(column)];
  }

  // What belongs to a row's units, in the order of the layout. Any number of bytes a unit.
  void put_units(std::span<const std::byte> from, std::span<std::byte> to) const {
    const auto& [period, picks, unit, is_stack, is_transposed] = tensor_.layout;
    const std::size_t units = static_cast<std::size_t>(source_columns_ / unit), each = from.size() / units;
    const auto whole = static_cast<std::size_t>(period);
    for (std::size_t i = 0; i < to.size() / each; ++i) {
      const std::size_t source = i / picks.size() * whole + static_cast<std::size_t>(picks[i % picks.size()]);
      std::ranges::copy(from.subspan(source * each, each), to.begin() + static_cast<std::ptrdiff_t>(i * each));
    }
  }

  void order(std::vector<std::byte>& row) const {
    if (row.empty() || tensor_.layout.is_plain() || !orders_columns()) return;
    const std::vector<std::byte> from = row;
    put_units(from, row);
  }

  void write_codes(std::int64_t row, std::byte* out) {
    const std::size_t groups = columns_ / static_cast<std::size_t>(record_.group_size);
    codes_.resize(static_cast<std::size_t>(packed_row_bytes(*record_.scheme, record_.shape.back())));
    read(Part::kCodes, static_cast<std::uint64_t>(row) * codes_.size(), codes_);
    read_scales(Part::kScale, row, groups, scales_);
    if (record_.parts.has(Part::kOffset)) read_scales(Part::kOffset, row, groups, offsets_);
    for (std::vector<std::byte>* part : {&codes_, &scales_, &offsets_}) order(*part);
    tensor_.how->exact(
        {codes_.data(), scales_.data(), offsets_.data(), columns_, static_cast<std::size_t>(record_.group_size)}, out);
  }

  // A row of scales or offsets, whose numbers the type has.
  void read_scales(Part part, std::int64_t row, std::size_t groups, std::vector<std::byte>& out) {
    const auto count = static_cast<std::int64_t>(groups);
    stored_.resize(groups * static_cast<std::size_t>(size_bytes(record_.scale_dtype)));
    read(part, static_cast<std::uint64_t>(row) * stored_.size(), stored_);
    if (files::first_non_finite(record_.scale_dtype, stored_)) files::check_scales(source_, record_);
    if (record_.scale_dtype == Dtype::kFloat16 && !tensor_.how->has_exponents) {
      out = stored_;
      return;
    }
    values_.resize(groups);
    std::byte* const wide = std::as_writable_bytes(std::span(values_)).data();
    quant::convert(stored_.data(), record_.scale_dtype, wide, Dtype::kFloat32, count);
    if (tensor_.how->has_exponents) {
      out.clear();
      for (const float scale : values_) out.push_back(static_cast<std::byte>(std::ilogb(scale) + 127));
      return;
    }
    out.resize(groups * 2);
    quant::convert(wide, Dtype::kFloat32, out.data(), Dtype::kFloat16, count);
  }

  void read(Part part, std::uint64_t begin, std::span<std::byte> out) const {
    files::read_stored(source_, *source_.find(record_.parts[part]), begin, out);
  }

  void write_values(std::int64_t row, std::byte* out) {
    const std::int64_t first = source_row(row) * source_columns_;
    for (float& value : values_) {
      if (tensor_.instead == files::GgufValues::kPlusOne) value += 1;
      if (tensor_.instead == files::GgufValues::kMinusExp) value = -std::exp(value);
    }
    if (!std::ranges::all_of(values_, [](float value) { return std::isfinite(value); }))
      throw Error(ErrorCode::kCorrupt, "tensor " + files::in_quotes(record_.name) + " has values that are not finite");
    if (!tensor_.how->quantize) return round_values(target_, first, values_, out);
    tensor_.how->quantize(values_, out);
    check_blocks(first, out);
  }

  // A value that is too large for the block's float16 numbers would make them infinite.
  void check_blocks(std::int64_t first, const std::byte* blocks) const {
    for (std::size_t begin = 0; begin < columns_; begin += kGgufBlock, blocks += tensor_.type->block_bytes) {
      for (std::size_t i = 0; i < tensor_.how->float16s; ++i) {
        if (is_finite_float16(blocks + 2 * i)) continue;
        const auto block = std::span(values_).subspan(begin, kGgufBlock);
        const auto largest = std::ranges::max_element(block, {}, [](float value) { return std::abs(value); });
        fail_too_large(record_, first + static_cast<std::int64_t>(begin) + (largest - block.begin()), *largest,
                       tensor_.how->name, target_.remedy);
      }
    }
  }

  const files::Checkpoint& source_;
  const GgufOutput& tensor_;
  const TensorRecord& record_;
  DenseTarget target_;
  files::TensorReader reader_;
  std::size_t columns_;  // of the result
  std::int64_t source_columns_;
  std::int64_t held_matrix_ = -1;  // which whole_ has
  std::vector<float> whole_;
  std::vector<std::byte> codes_, stored_, scales_, offsets_;
  std::vector<float> values_;
};

// Rows of one of the tensor's sources.
struct Piece {
  std::size_t source;
  std::int64_t begin, end;
};

class GgufRows final : public ImageSource {
 public:
  GgufRows(const files::Checkpoint& source, const GgufOutput& tensor) : source_(source), tensor_(tensor) {
    std::int64_t rows = 1;
    for (const std::int64_t length : tensor.shape) rows *= length;
    rows /= tensor.row_values() * std::ssize(tensor.sources);
    for (std::size_t i = 0; i < tensor.sources.size(); ++i) {
      for (std::int64_t at = 0; at < rows; at += kPieceRows)
        pieces_.push_back({i, at, std::min(at + kPieceRows, rows)});
    }
  }

  std::size_t pieces() const override { return pieces_.size(); }

  void write(std::size_t piece, const WritePart& write) const override {
    const auto [source, begin, end] = pieces_[piece];
    RowWriter rows(source_, tensor_, *tensor_.sources[source]);
    std::vector<std::byte> out(static_cast<std::size_t>(end - begin) * rows.row_bytes());
    for (std::int64_t row = begin; row < end; ++row)
      rows.write(row, out.data() + static_cast<std::size_t>(row - begin) * rows.row_bytes());
    const std::uint64_t first = source * (tensor_.size_bytes / tensor_.sources.size());
    write(0, first + static_cast<std::uint64_t>(begin) * rows.row_bytes(), out);
  }

 private:
  const files::Checkpoint& source_;
  const GgufOutput& tensor_;
  std::vector<Piece> pieces_;
};

}  // namespace

std::shared_ptr<const ImageSource> gguf_rows(const files::Checkpoint& source, const GgufOutput& tensor) {
  return std::make_shared<GgufRows>(source, tensor);
}

}  // namespace halfbyte::convert
