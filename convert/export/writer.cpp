#include "convert/export/writer.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include <halfbyte/error.h>

#include "convert/output/image.h"
#include "loader/files/matrix_shape.h"
#include "loader/files/packed_parts.h"
#include "loader/files/parallel.h"
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
// Units: bytes.
constexpr std::int64_t kCopyPiece = std::int64_t{1} << 24;
constexpr std::int64_t kCopyBlock = std::int64_t{1} << 20;

std::shared_ptr<const files::TensorBytes> shape_bytes(const TensorRecord& record) {
  const auto bytes = std::as_bytes(std::span(record.shape));
  return std::make_shared<files::ConstantBytes>(std::vector<std::byte>(bytes.begin(), bytes.end()));
}

void add_copied(const files::Checkpoint& source, const ExportedTensor& tensor, ExportedParts& out) {
  const files::TensorParts names =
      tensor.result.scheme ? files::packed_part_names(tensor.result) : tensor.source->parts;
  for (std::size_t i = 0; i < files::kPartCount; ++i) {
    if (names.names[i].empty()) continue;
    if (tensor.source->parts.names[i].empty()) {  // only a shape may be missing
      out.tensors.push_back(
          output_tensor(names.names[i], Dtype::kInt64, {static_cast<std::int64_t>(tensor.source->shape.size())}));
      out.bytes.push_back(shape_bytes(*tensor.source));
      continue;
    }
    const files::StoredTensor& stored = *source.find(tensor.source->parts.names[i]);
    out.tensors.push_back({names.names[i], stored.dtype, stored.shape, stored.size_bytes, 0});
    out.bytes.push_back(stored_bytes(source, stored));
  }
}

ExportedParts parts_of(const files::Checkpoint& source, const ExportPlan& plan, const ExportedTensor& tensor) {
  ExportedParts out;
  out.source_file = files::file_on_disk(source, source.find(tensor.source->parts[Part::kCodes])->file);
  if (tensor.action == ExportAction::kCopy) {
    add_copied(source, tensor, out);
  } else if (tensor.action == ExportAction::kDequantize) {
    out.tensors = {output_tensor(tensor.source->name, tensor.result.stored_dtype, tensor.source->shape)};
  } else {
    out.tensors = plan.format->layout->parts(tensor.result);
  }
  return out;
}

void check_names(const ExportImage& image) {
  std::set<std::string_view> names;
  for (const ExportedParts& parts : image.parts) {
    for (const OutputTensor& tensor : parts.tensors) {
      if (names.insert(tensor.name).second) continue;
      throw Error(ErrorCode::kUnsupported,
                  "two tensors of the result would be called " + files::in_quotes(tensor.name));
    }
  }
}

// Part of one tensor. Units: rows, or bytes of the part of a tensor that is copied.
struct Piece {
  std::size_t tensor;
  std::size_t part;
  std::int64_t begin, end;
};

class Writer {
 public:
  Writer(const files::Checkpoint& source, const ExportPlan& plan, const ExportImage& image,
         const files::fs::path& directory, const ExportOptions& options)
      : source_(source), plan_(plan), image_(image), options_(options), progress_(options.progress, image.size_bytes) {
    for (std::size_t i = 0; i < image.files.size(); ++i) {
      const DataFileLayout& file = image.files[i];
      files_.push_back(std::make_unique<files::OutputFile>(directory / file.name, file.size_bytes));
      files_.back()->write(0, std::as_bytes(std::span(file.header)));
      for (const OutputTensor& tensor : file.tensors) places_.emplace(tensor.name, Place{i, tensor.offset});
    }
  }

  quant::ErrorStats run() {
    const std::vector<Piece> pieces = split();
    files::parallel_for(pieces.size(), options_.threads, [&](std::size_t i) { write(pieces[i]); });
    for (const auto& file : files_) file->sync();
    return stats_;
  }

 private:
  struct Place {
    std::size_t file;
    std::uint64_t offset;
  };

  std::int64_t piece_codes() const {
    const std::int64_t threads =
        options_.threads > 0 ? options_.threads : std::max<std::int64_t>(1, std::thread::hardware_concurrency());
    return std::clamp(kAllCodes / threads, kSmallestPiece, kLargestPiece);
  }

  static void cut(std::size_t tensor, std::size_t part, std::int64_t size, std::int64_t step, std::vector<Piece>& out) {
    for (std::int64_t at = 0; at < size; at += step) out.push_back({tensor, part, at, std::min(at + step, size)});
  }

  // Pieces of packed rows begin at whole words of zero points.
  std::vector<Piece> split() const {
    std::vector<Piece> out;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const ExportedTensor& tensor = plan_.tensors[i];
      const ExportedParts& parts = image_.parts[i];
      for (std::size_t part = 0; part < parts.bytes.size(); ++part)
        cut(i, part, static_cast<std::int64_t>(parts.tensors[part].size_bytes), kCopyPiece, out);
      if (!parts.bytes.empty()) continue;
      const auto [rows, columns] = files::matrix_shape(tensor.source->shape);
      const std::int64_t step = piece_codes() / packed_row_bytes(*tensor.source->scheme, columns) / 64 * 64;
      cut(i, 0, rows, std::max<std::int64_t>(step, 64), out);
    }
    return out;
  }

  void write(const Piece& piece) {
    switch (plan_.tensors[piece.tensor].action) {
      case ExportAction::kCopy:
        return copy(piece);
      case ExportAction::kDequantize:
        return dequantize(piece);
      default:
        return pack(piece);
    }
  }

  void put(std::size_t tensor, std::size_t part, std::uint64_t offset, std::span<const std::byte> bytes) {
    const Place& place = places_.at(image_.parts[tensor].tensors[part].name);
    files_[place.file]->write(place.offset + offset, bytes);
  }

  // Looks for Ctrl-C after each block, so that it is heard at once.
  void written(std::uint64_t bytes) {
    if (options_.stop.stop_requested())
      throw Error(ErrorCode::kInterrupted, "stopped; what was written has been removed");
    progress_.add(bytes);
  }

  void copy(const Piece& piece) {
    std::vector<std::byte> block;
    for (std::int64_t at = piece.begin; at < piece.end; at += kCopyBlock) {
      block.resize(static_cast<std::size_t>(std::min(kCopyBlock, piece.end - at)));
      image_.parts[piece.tensor].bytes[piece.part]->read(static_cast<std::uint64_t>(at), block);
      put(piece.tensor, piece.part, static_cast<std::uint64_t>(at), block);
      written(block.size());
    }
  }

  void dequantize(const Piece& piece) {
    const ExportedTensor& tensor = plan_.tensors[piece.tensor];
    files::TensorReader reader(source_, *tensor.source);
    const std::int64_t width = size_bytes(tensor.result.stored_dtype), row_size = reader.row_size();
    const std::int64_t step = std::max<std::int64_t>(1, kCopyBlock / 4 / row_size);
    std::vector<float> values;
    std::vector<std::byte> out;
    for (std::int64_t row = piece.begin; row < piece.end; row += step) {
      const std::int64_t count = std::min(step, piece.end - row) * row_size;
      values.resize(static_cast<std::size_t>(count));
      out.resize(static_cast<std::size_t>(count * width));
      reader.read(row * row_size, values);
      quant::convert(std::as_bytes(std::span(values)).data(), Dtype::kFloat32, out.data(), tensor.result.stored_dtype,
                     count);
      put(piece.tensor, 0, static_cast<std::uint64_t>(row * row_size * width), out);
      written(out.size());
    }
  }

  void pack(const Piece& piece) {
    const ExportedTensor& tensor = plan_.tensors[piece.tensor];
    BlockReader reader(source_, *tensor.source, tensor.result);
    PackedBlock block;
    if (tensor.action == ExportAction::kQuantize) {
      quant::ErrorStats stats;
      reader.quantize(piece.begin, piece.end - piece.begin, block, stats);
      const std::lock_guard lock(mutex_);
      stats_.add(stats);
    } else {
      reader.read(piece.begin, piece.end - piece.begin, block);
    }
    std::uint64_t bytes = 0;
    plan_.format->layout->write(tensor.result, plan_.facts, block,
                                [&](std::size_t part, std::uint64_t offset, std::span<const std::byte> data) {
                                  put(piece.tensor, part, offset, data);
                                  bytes += data.size();
                                });
    written(bytes);
  }

  const files::Checkpoint& source_;
  const ExportPlan& plan_;
  const ExportImage& image_;
  const ExportOptions& options_;
  files::SharedProgress progress_;
  std::vector<std::unique_ptr<files::OutputFile>> files_;
  std::map<std::string_view, Place> places_;  // by tensor
  std::mutex mutex_;
  quant::ErrorStats stats_;
};

}  // namespace

ExportImage lay_out_export(const files::Checkpoint& source, const ExportPlan& plan) {
  ExportImage out;
  std::vector<std::vector<OutputTensor>> by_file(source.data_files.size());
  for (const ExportedTensor& tensor : plan.tensors) {
    out.parts.push_back(parts_of(source, plan, tensor));
    for (const OutputTensor& part : out.parts.back().tensors) {
      by_file[out.parts.back().source_file].push_back(part);
      out.size_bytes += part.size_bytes;
    }
  }
  check_names(out);
  std::erase_if(by_file, [](const auto& tensors) { return tensors.empty(); });
  for (std::size_t i = 0; i < by_file.size(); ++i)  // transformers asks for "format"
    out.files.push_back(lay_out(data_file_name(i, by_file.size()), std::move(by_file[i]), {{"format", "pt"}}));
  return out;
}

quant::ErrorStats write_export(const files::Checkpoint& source, const ExportPlan& plan, const ExportImage& image,
                               const files::fs::path& directory, const ExportOptions& options) {
  return Writer(source, plan, image, directory, options).run();
}

}  // namespace halfbyte::convert
