#include "convert/export/image.h"

#include <algorithm>
#include <set>
#include <thread>

#include <halfbyte/error.h>

#include "convert/export/dense_values.h"
#include "convert/output/finite_parts.h"
#include "convert/output/stored_parts.h"
#include "loader/files/matrix_shape.h"
#include "loader/files/packed_parts.h"
#include "loader/files/printable.h"
#include "loader/files/translation.h"

namespace halfbyte::convert {
namespace {

using files::Part;
using files::TensorRecord;

// A thread holds the codes of a piece twice, as they were and as they will be. The larger a piece, the longer the runs
// in which a transposed one is written. Units: bytes of codes, of all threads together and of one.
constexpr std::int64_t kAllCodes = std::int64_t{64} << 20;
constexpr std::int64_t kLargestPiece = std::int64_t{8} << 20, kSmallestPiece = std::int64_t{1} << 20;

std::int64_t piece_codes(int asked_threads) {
  const std::int64_t threads =
      asked_threads > 0 ? asked_threads : std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  return std::clamp(kAllCodes / threads, kSmallestPiece, kLargestPiece);
}

// A tensor in the format's layout: pieces are panels of rows that begin at whole words of zero points.
class PackedRows final : public ImageSource {
 public:
  PackedRows(const files::Checkpoint& source, const ExportPlan& plan, const ExportedTensor& tensor, int threads,
             ExportErrors& errors)
      : source_(source), plan_(plan), tensor_(tensor), errors_(errors) {
    const auto [rows, columns] = files::matrix_shape(tensor.source->shape);
    rows_ = rows;
    step_ =
        std::max<std::int64_t>(64, piece_codes(threads) / packed_row_bytes(*tensor.source->scheme, columns) / 64 * 64);
  }

  std::size_t pieces() const override { return static_cast<std::size_t>((rows_ + step_ - 1) / step_); }

  void write(std::size_t piece, const WritePart& write) const override {
    const std::int64_t begin = static_cast<std::int64_t>(piece) * step_, rows = std::min(step_, rows_ - begin);
    BlockReader reader(source_, *tensor_.source, tensor_.result);
    PackedBlock block;
    if (tensor_.action == ExportAction::kQuantize) {
      quant::ErrorStats stats;
      reader.quantize(begin, rows, block, stats);
      errors_.add(stats);
    } else {
      reader.read(begin, rows, block);
    }
    plan_.format->layout->write(tensor_.result, plan_.facts, block, write);
  }

 private:
  const files::Checkpoint& source_;
  const ExportPlan& plan_;
  const ExportedTensor& tensor_;
  ExportErrors& errors_;
  std::int64_t rows_ = 0, step_ = 1;
};

std::shared_ptr<const files::TensorBytes> shape_bytes(const TensorRecord& record) {
  const auto bytes = std::as_bytes(std::span(record.shape));
  return std::make_shared<files::ConstantBytes>(std::vector<std::byte>(bytes.begin(), bytes.end()));
}

void add_copied(const files::Checkpoint& source, const ExportedTensor& tensor, ImageRecord& out) {
  const files::TensorParts names =
      tensor.result.scheme ? files::packed_part_names(tensor.result) : tensor.source->parts;
  std::vector<std::shared_ptr<const files::TensorBytes>> bytes;
  for (std::size_t i = 0; i < files::kPartCount; ++i) {
    if (names.names[i].empty()) continue;
    if (tensor.source->parts.names[i].empty()) {  // only a shape may be missing
      out.parts.push_back(
          output_tensor(names.names[i], Dtype::kInt64, {static_cast<std::int64_t>(tensor.source->shape.size())}));
      bytes.push_back(shape_bytes(*tensor.source));
      continue;
    }
    const files::StoredTensor& stored = *source.find(tensor.source->parts.names[i]);
    out.parts.push_back({names.names[i], stored.dtype, stored.shape, stored.size_bytes, 0});
    bytes.push_back(stored_bytes(source, stored));
  }
  out.source = stored_parts(std::move(bytes));
}

ImageRecord record_of(const files::Checkpoint& source, const ExportPlan& plan, const ExportedTensor& tensor,
                      int threads, ExportErrors& errors) {
  ImageRecord out;
  out.source_file = files::file_on_disk(source, source.find(tensor.source->parts[Part::kCodes])->file);
  if (tensor.action == ExportAction::kCopy) {
    add_copied(source, tensor, out);
  } else if (tensor.action == ExportAction::kDequantize) {
    const DenseTarget target = dense_target(source, *tensor.source, tensor.result.stored_dtype);
    out.parts = {output_tensor(tensor.source->name, target.dtype, target.shape())};
    out.source = dense_part(source, target);
  } else {
    out.parts = plan.format->layout->parts(tensor.result);
    out.source = std::make_shared<PackedRows>(source, plan, tensor, threads, errors);
  }
  if (tensor.action != ExportAction::kDequantize) check_finite_parts(source, *tensor.source, out);
  return out;
}

void check_names(const std::vector<ImageRecord>& records) {
  std::set<std::string_view> names;
  for (const ImageRecord& record : records) {
    for (const OutputTensor& tensor : record.parts) {
      if (names.insert(tensor.name).second) continue;
      throw Error(ErrorCode::kUnsupported,
                  "two tensors of the result would be called " + files::in_quotes(tensor.name));
    }
  }
}

}  // namespace

Image lay_out_export(const files::Checkpoint& source, const ExportPlan& plan, int threads, ExportErrors& errors) {
  std::vector<ImageRecord> records;
  for (const ExportedTensor& tensor : plan.tensors) records.push_back(record_of(source, plan, tensor, threads, errors));
  check_names(records);
  return lay_out_image(std::move(records), 0);
}

}  // namespace halfbyte::convert
