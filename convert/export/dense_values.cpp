#include "convert/export/dense_values.h"

#include <algorithm>
#include <cmath>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>
#include <halfbyte/quantize.h>

#include "loader/files/finite.h"
#include "loader/files/printable.h"
#include "loader/files/turned_stacks.h"

namespace halfbyte::convert {
namespace {

using files::TensorRecord;

// A thread reads and writes blocks of so many values; it takes pieces of so many, with buffers of their own.
constexpr std::int64_t kBlockValues = std::int64_t{1} << 18;
constexpr std::int64_t kPieceValues = std::int64_t{1} << 24;
constexpr std::int64_t kBandValues = std::int64_t{1} << 22;  // of what is turned

std::int64_t whole_rows(std::int64_t values, std::int64_t row_size) {
  return std::max<std::int64_t>(1, values / row_size) * row_size;
}

Text remedy(const DenseTarget& target, Dtype dtype) {
  if (target.through == dtype) return "its own program computes in that dtype";
  return target.remedy.empty() ? Text("float32 holds it") : target.remedy;
}

void write_largest(Dtype dtype, float sign, std::byte* out) {
  const float value = std::copysign(largest_value(dtype), sign);
  quant::convert(std::as_bytes(std::span(&value, 1)).data(), Dtype::kFloat32, out, dtype, 1);
}

// Cuts what was finite in the dtype; names what never was.
void cut(const DenseTarget& target, Dtype dtype, std::int64_t first, std::span<const float> values,
         std::byte* rounded) {
  std::vector<float> back(values.size());
  quant::convert(rounded, dtype, std::as_writable_bytes(std::span(back)).data(), Dtype::kFloat32,
                 static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(back[i])) continue;
    const std::int64_t index = first + static_cast<std::int64_t>(i);
    if (!std::isfinite(values[i])) {
      if (!target.must_be_finite) continue;
      files::fail_non_finite("tensor " + files::in_quotes(target.record->name), target.record->shape,
                             static_cast<std::uint64_t>(index), values[i]);
    }
    if (!files::is_past_end(*target.record, dtype, values[i]))
      fail_too_large(*target.record, index, values[i], name(dtype), remedy(target, dtype));
    write_largest(dtype, values[i], rounded + i * static_cast<std::size_t>(size_bytes(dtype)));
  }
}

void round_to(const DenseTarget& target, Dtype dtype, std::int64_t first, std::span<const float> values,
              std::byte* out) {
  const auto count = static_cast<std::int64_t>(values.size());
  quant::convert(std::as_bytes(values).data(), Dtype::kFloat32, out, dtype, count);
  if (dtype == Dtype::kFloat32 && !target.must_be_finite) return;
  if (quant::find_non_finite({out, dtype, 1, count}, 1)) cut(target, dtype, first, values, out);
}

class DensePart final : public ImageSource {
 public:
  DensePart(const files::Checkpoint& source, const DenseTarget& target) : source_(source), target_(target) {
    const DenseReader reader(source, target);
    size_ = reader.size();
    block_ = whole_rows(kBlockValues, reader.row_size());
    piece_ = whole_rows(kPieceValues, reader.row_size());
  }

  std::size_t pieces() const override { return static_cast<std::size_t>((size_ + piece_ - 1) / piece_); }

  void write(std::size_t piece, const WritePart& write) const override {
    const std::int64_t begin = static_cast<std::int64_t>(piece) * piece_, end = std::min(begin + piece_, size_);
    const std::int64_t width = size_bytes(target_.dtype);
    DenseReader reader(source_, target_);
    std::vector<std::byte> out;
    for (std::int64_t at = begin; at < end; at += block_) {
      const std::int64_t count = std::min(block_, end - at);
      out.resize(static_cast<std::size_t>(count * width));
      reader.read(at, count, out.data());
      write(0, static_cast<std::uint64_t>(at * width), out);
    }
  }

 private:
  const files::Checkpoint& source_;
  DenseTarget target_;
  std::int64_t size_ = 0, block_ = 1, piece_ = 1;  // values
};

// Of a stack whose matrices are turned. Pieces are bands of the rows that are written, columns of one packed matrix:
// its rows are dequantised anew for each band.
class TurnedPart final : public ImageSource {
 public:
  TurnedPart(const files::Checkpoint& source, const DenseTarget& target)
      : source_(source),
        target_(target),
        rows_(target.record->shape[1]),
        columns_(target.record->shape[2]),
        band_(std::min(columns_, std::max<std::int64_t>(1, kBandValues / rows_))) {}

  std::size_t pieces() const override { return static_cast<std::size_t>(target_.record->shape[0] * bands()); }

  void write(std::size_t piece, const WritePart& write) const override {
    const std::int64_t matrix = static_cast<std::int64_t>(piece) / bands();
    const std::int64_t begin = static_cast<std::int64_t>(piece) % bands() * band_;
    const std::int64_t count = std::min(band_, columns_ - begin), width = size_bytes(target_.dtype);
    const std::int64_t step = std::max<std::int64_t>(1, kBlockValues / columns_);
    DenseReader reader(source_, target_);
    std::vector<std::byte> rows(static_cast<std::size_t>(std::min(step, rows_) * columns_ * width));
    std::vector<std::byte> out(static_cast<std::size_t>(count * rows_ * width));
    for (std::int64_t row = 0; row < rows_; row += step) {
      const std::int64_t some = std::min(step, rows_ - row);
      reader.read((matrix * rows_ + row) * columns_, some * columns_, rows.data());
      files::put_columns(
          {static_cast<std::uint64_t>(columns_), static_cast<std::uint64_t>(some), static_cast<std::uint64_t>(count),
           static_cast<std::uint64_t>(rows_), static_cast<std::uint64_t>(width)},
          rows.data() + begin * width, out.data() + row * width);
    }
    write(0, static_cast<std::uint64_t>((matrix * columns_ + begin) * rows_ * width), out);
  }

 private:
  std::int64_t bands() const noexcept { return (columns_ + band_ - 1) / band_; }

  const files::Checkpoint& source_;
  DenseTarget target_;
  std::int64_t rows_, columns_;  // of a packed matrix
  std::int64_t band_;            // columns
};

}  // namespace

std::vector<std::int64_t> DenseTarget::shape() const {
  std::vector<std::int64_t> out = record->shape;
  if (is_turned) std::swap(out[1], out[2]);
  return out;
}

DenseTarget dense_target(const files::Checkpoint& source, const TensorRecord& record, Dtype dtype) {
  DenseTarget out{.record = &record, .dtype = dtype, .must_be_finite = files::must_be_finite(source, record)};
  const bool is_rounded = source.rounds_values && (record.scheme || record.stored_dtype == Dtype::kFloat32);
  const bool is_known = record.original_dtype && is_weight_dtype(*record.original_dtype);
  if (is_rounded && is_known && *record.original_dtype != dtype) out.through = record.original_dtype;
  const bool is_stack = record.shape.size() == 3 && std::ranges::all_of(record.shape, [](auto n) { return n > 0; });
  out.is_turned = record.scheme && is_stack && files::stores_columns(source, record.name, record.shape);
  return out;
}

void fail_too_large(const TensorRecord& record, std::int64_t index, float value, std::string_view type,
                    const Text& remedy) {
  const std::int64_t columns = record.shape.empty() ? 1 : record.shape.back();
  throw Error(ErrorCode::kUnsupported, "tensor " + files::in_quotes(record.name) + ": " + std::to_string(value) +
                                           " (row " + std::to_string(index / columns) + ", column " +
                                           std::to_string(index % columns) + ") is too large for " + std::string(type) +
                                           "; " + remedy);
}

void round_values(const DenseTarget& target, std::int64_t first, std::span<float> values, std::byte* out) {
  if (target.through) {
    std::vector<std::byte> rounded(values.size() * static_cast<std::size_t>(size_bytes(*target.through)));
    round_to(target, *target.through, first, values, rounded.data());
    quant::convert(rounded.data(), *target.through, std::as_writable_bytes(values).data(), Dtype::kFloat32,
                   static_cast<std::int64_t>(values.size()));
  }
  round_to(target, target.dtype, first, values, out);
}

void DenseReader::read(std::int64_t begin, std::int64_t count, std::byte* out) {
  values_.resize(static_cast<std::size_t>(count));
  reader_.read(begin, values_);
  round_values(target_, begin, values_, out);
}

std::shared_ptr<const ImageSource> dense_part(const files::Checkpoint& source, const DenseTarget& target) {
  if (target.is_turned) return std::make_shared<TurnedPart>(source, target);
  return std::make_shared<DensePart>(source, target);
}

}  // namespace halfbyte::convert
