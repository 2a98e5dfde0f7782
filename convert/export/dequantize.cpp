// Checkpoint -> plain Hugging Face checkpoint: every tensor as float values again, nothing else changed.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <string_view>
#include <system_error>

#include <halfbyte/convert.h>
#include <halfbyte/linear.h>

#include "convert/file_notes.h"
#include "convert/output/data_file_layout.h"
#include "convert/output/destination.h"
#include "convert/translated_errors.h"
#include "loader/files/checkpoint.h"
#include "loader/files/directory.h"
#include "loader/files/parallel.h"
#include "loader/files/printable.h"
#include "loader/files/tensor_reader.h"
#include "loader/files/translation.h"

namespace halfbyte::convert {
namespace {

using files::in_quotes;
using files::printable_path;
using files::TensorRecord;

// For config.json and the index when the disk is asked for room. Units: bytes.
constexpr std::uint64_t kRoomForSmallFiles = 4'000'000;
// A thread reads and writes blocks of so many values; it takes pieces of so many, with buffers of their own.
constexpr std::int64_t kBlockValues = std::int64_t{1} << 18;
constexpr std::int64_t kPieceValues = std::int64_t{1} << 24;

// What becomes of one tensor on record.
struct Target {
  const TensorRecord* record;
  Dtype dtype;
  std::optional<Dtype> through = {};  // the dtype that values are rounded to first
  std::size_t file = 0;               // index into Plan::files
  std::uint64_t offset = 0;           // from the start of that file
  bool is_copied() const noexcept { return !record->scheme && record->stored_dtype == dtype && !through; }
};

struct Restoration {
  std::vector<Target> targets;
  std::vector<DataFileLayout> files;
  std::vector<fs::path> side_files;  // to copy
  std::vector<std::string> notes;
  std::uint64_t result_bytes = 0;  // of tensor data
};

std::string counted_tensors(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " tensor" : " tensors");
}

// Chooses each tensor's dtype and counts what a user should hear of.
class DtypeChoice {
 public:
  explicit DtypeChoice(std::optional<Dtype> asked) : asked_(asked) {
    if (!asked_ || is_weight_dtype(*asked_)) return;
    throw Error(ErrorCode::kInvalidArgument,
                "dtype " + std::string(name(*asked_)) + ": tensors can be written as float32, float16 or bfloat16");
  }

  Dtype operator()(const TensorRecord& record) {
    const bool can_convert = files::TensorReader::can_read(record);
    if (!can_convert) {
      other_floats_ += asked_ && is_floating(record.stored_dtype) ? 1 : 0;
      return record.stored_dtype;
    }
    if (asked_) return *asked_;
    if (record.original_dtype && is_weight_dtype(*record.original_dtype)) return *record.original_dtype;
    if (!record.scheme) return record.stored_dtype;
    if (record.original_dtype) {
      throw Error(ErrorCode::kUnsupported, "tensor " + in_quotes(record.name) + " was " +
                                               std::string(name(*record.original_dtype)) +
                                               ", which is not written back; give --dtype float32");
    }
    ++unknown_;
    return Dtype::kFloat32;
  }

  void add_notes(std::vector<std::string>& notes) const {
    if (unknown_ > 0) {
      notes.push_back("the original dtype of " + counted_tensors(unknown_) +
                      " is not on record: written as float32; --assume-original or --dtype chooses another");
    }
    if (other_floats_ > 0) {
      notes.push_back(counted_tensors(other_floats_) +
                      " of other floating dtypes (float64, float8 ...) stay as they are");
    }
  }

 private:
  std::optional<Dtype> asked_;
  std::int64_t unknown_ = 0;
  std::int64_t other_floats_ = 0;
};

void choose_side_files(const files::Checkpoint& source, Restoration& out) {
  std::vector<fs::path> left_out;
  for (const fs::path& name : source.side_files) {
    (source.is_quantized() && is_quantization_file(name) ? left_out : out.side_files).push_back(name);
  }
  if (!left_out.empty()) out.notes.push_back("not copied, since the result is not quantised: " + listed(left_out));
}

// Sharded as the checkpoint is; a file that would hold nothing is left out.
void lay_out_files(std::vector<std::vector<OutputTensor>> by_file, Restoration& out) {
  std::erase_if(by_file, [](const auto& tensors) { return tensors.empty(); });
  if (by_file.empty()) by_file.emplace_back();
  for (std::size_t i = 0; i < by_file.size(); ++i) {
    out.files.push_back(lay_out(data_file_name(i, by_file.size()), std::move(by_file[i]), {{"format", "pt"}}));
  }
  for (std::size_t file = 0; file < out.files.size(); ++file) {
    for (const OutputTensor& tensor : out.files[file].tensors) {
      const auto at = std::ranges::lower_bound(out.targets, tensor.name, {},
                                               [](const Target& t) -> const std::string& { return t.record->name; });
      at->file = file;
      at->offset = tensor.offset;
      out.result_bytes += tensor.size_bytes;
    }
  }
}

const files::StoredTensor& codes_of(const files::Checkpoint& source, const TensorRecord& record) {
  return *source.find(record.parts[files::Part::kCodes]);
}

// bitsandbytes dequantises to the dtype on record, so that in a wider one its values are still those.
std::optional<Dtype> rounded_by_source(const files::Checkpoint& source, const TensorRecord& record, Dtype dtype) {
  const bool is_rounded = source.manifest.is_derived && source.kind == "bitsandbytes" &&
                          (record.scheme || record.stored_dtype == Dtype::kFloat32);
  if (!is_rounded || !record.original_dtype || !is_weight_dtype(*record.original_dtype)) return std::nullopt;
  return *record.original_dtype == dtype ? std::nullopt : record.original_dtype;
}

Restoration plan_restoration(const files::Checkpoint& source, const DequantizeOptions& options) {
  Restoration out;
  DtypeChoice choose(options.dtype);
  std::vector<std::vector<OutputTensor>> by_file(source.data_files.size());
  for (const TensorRecord& record : source.manifest.tensors) {
    const Dtype dtype = choose(record);
    out.targets.push_back({&record, dtype, rounded_by_source(source, record, dtype)});
    const files::StoredTensor& codes = codes_of(source, record);
    by_file[files::file_on_disk(source, codes.file)].push_back(
        out.targets.back().is_copied() ? OutputTensor{record.name, dtype, record.shape, codes.size_bytes, 0}
                                       : output_tensor(record.name, dtype, record.shape));
  }
  choose_side_files(source, out);
  const std::vector<std::string> file = file_notes(source);
  out.notes.insert(out.notes.begin(), file.begin(), file.end());
  choose.add_notes(out.notes);
  lay_out_files(std::move(by_file), out);
  return out;
}

// Part of one tensor. Units: values, or bytes of a tensor that is copied.
struct Piece {
  const Target* target;
  std::int64_t begin, end;
};

class TensorWriter {
 public:
  TensorWriter(const files::Checkpoint& source, const Restoration& plan, const DequantizeOptions& options,
               const fs::path& directory)
      : source_(source), plan_(plan), options_(options), progress_(options.progress, plan.result_bytes) {
    for (const DataFileLayout& file : plan.files) {
      files_.push_back(std::make_unique<files::OutputFile>(directory / file.name, file.size_bytes));
      files_.back()->write(0, std::as_bytes(std::span(file.header)));
    }
  }

  void run() {
    const std::vector<Piece> pieces = split();
    files::parallel_for(pieces.size(), options_.threads, [&](std::size_t i) {
      pieces[i].target->is_copied() ? copy(pieces[i]) : convert_piece(pieces[i]);
    });
    for (const auto& file : files_) file->sync();
  }

 private:
  std::vector<Piece> split() const {
    std::vector<Piece> out;
    for (const Target& target : plan_.targets) {
      std::int64_t size = static_cast<std::int64_t>(codes_of(source_, *target.record).size_bytes);
      std::int64_t step = kPieceValues;
      if (!target.is_copied()) {
        const files::TensorReader reader(source_, *target.record);
        size = reader.size();
        step = whole_rows(kPieceValues, reader.row_size());
      }
      for (std::int64_t at = 0; at < size; at += step) out.push_back({&target, at, std::min(at + step, size)});
    }
    return out;
  }

  static std::int64_t whole_rows(std::int64_t values, std::int64_t row_size) {
    return std::max<std::int64_t>(1, values / row_size) * row_size;
  }

  // One after each block, so that Ctrl-C is heard at once.
  void written(std::uint64_t bytes) {
    if (options_.stop.stop_requested())
      throw Error(ErrorCode::kInterrupted, "stopped; what was written has been removed");
    progress_.add(bytes);
  }

  void write(const Target& target, std::uint64_t begin_bytes, std::span<const std::byte> bytes) {
    files_[target.file]->write(target.offset + begin_bytes, bytes);
    written(bytes.size());
  }

  void copy(const Piece& piece) {
    const files::StoredTensor& codes = codes_of(source_, *piece.target->record);
    const auto end = static_cast<std::uint64_t>(piece.end);
    std::vector<std::byte> block;
    for (auto at = static_cast<std::uint64_t>(piece.begin); at < end; at += block.size()) {
      block.resize(std::min<std::uint64_t>(std::uint64_t{kBlockValues}, end - at));
      source_.data_files[codes.file]->read(codes.offset + at, block);
      write(*piece.target, at, block);
    }
  }

  void convert_piece(const Piece& piece) {
    const Target& target = *piece.target;
    files::TensorReader reader(source_, *target.record);
    const std::int64_t step = whole_rows(kBlockValues, reader.row_size());
    const std::int64_t width = size_bytes(target.dtype);
    std::vector<float> values;
    std::vector<std::byte> out;
    for (std::int64_t at = piece.begin; at < piece.end; at += step) {
      const std::int64_t count = std::min(step, piece.end - at);
      values.resize(static_cast<std::size_t>(count));
      out.resize(static_cast<std::size_t>(count * width));
      reader.read(at, values);
      if (target.through) round_to(*target.through, values);
      quant::convert(std::as_bytes(std::span(values)).data(), Dtype::kFloat32, out.data(), target.dtype, count);
      check_overflow(target, at, values, out);
      write(target, static_cast<std::uint64_t>(at * width), out);
    }
  }

  static void round_to(Dtype dtype, std::span<float> values) {
    const auto count = static_cast<std::int64_t>(values.size());
    std::vector<std::byte> rounded(static_cast<std::size_t>(count * size_bytes(dtype)));
    const auto floats = std::as_writable_bytes(values);
    quant::convert(floats.data(), Dtype::kFloat32, rounded.data(), dtype, count);
    quant::convert(rounded.data(), dtype, floats.data(), Dtype::kFloat32, count);
  }

  // A finite value that became infinite. What was infinite or NaN before stays so.
  static void check_overflow(const Target& target, std::int64_t begin, std::span<const float> values,
                             std::span<const std::byte> out) {
    const auto count = static_cast<std::int64_t>(values.size());
    if (target.dtype == Dtype::kFloat32 || !quant::find_non_finite({out.data(), target.dtype, 1, count})) return;
    std::vector<float> rounded(values.size());
    quant::convert(out.data(), target.dtype, std::as_writable_bytes(std::span(rounded)).data(), Dtype::kFloat32, count);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i]) || std::isfinite(rounded[i])) continue;
      fail_overflow(target, begin + static_cast<std::int64_t>(i), values[i]);
    }
  }

  [[noreturn]] static void fail_overflow(const Target& target, std::int64_t index, float value) {
    const std::vector<std::int64_t>& shape = target.record->shape;
    const std::int64_t columns = shape.empty() ? 1 : shape.back();
    const std::string place = "row " + std::to_string(index / columns) + ", column " + std::to_string(index % columns);
    throw Error(ErrorCode::kUnsupported, "tensor " + in_quotes(target.record->name) + ": " + std::to_string(value) +
                                             " (" + place + ") is too large for " + std::string(name(target.dtype)) +
                                             "; give --dtype float32" +
                                             (target.dtype == Dtype::kFloat16 ? " or bfloat16" : ""));
  }

  const files::Checkpoint& source_;
  const Restoration& plan_;
  const DequantizeOptions& options_;
  files::SharedProgress progress_;
  std::vector<std::unique_ptr<files::OutputFile>> files_;
};

// The one dtype of all the weights, or nothing.
std::optional<Dtype> common_dtype(const Restoration& plan) {
  std::optional<Dtype> out;
  for (const Target& target : plan.targets) {
    if (!is_weight_dtype(target.dtype)) continue;
    if (out && *out != target.dtype) return std::nullopt;
    out = target.dtype;
  }
  return out;
}

// As the source had it, less the quantisation. The dtype is said again where it was said, if it has changed.
std::string config_text(const files::Checkpoint& source, const Restoration& plan, const DequantizeOptions& options) {
  nlohmann::ordered_json config = source.config;
  if (source.is_quantized()) config.erase("quantization_config");
  const std::optional<Dtype> declared = models::declared_dtype(nlohmann::json(config));
  const std::optional<Dtype> dtype = options.dtype ? options.dtype : common_dtype(plan);
  // A model of mixed dtypes keeps its word, and so does one whose recorded dtypes are written.
  const bool is_recorded =
      !options.dtype && !options.assume_original &&
      std::ranges::all_of(plan.targets, [](const Target& target) { return target.record->original_dtype.has_value(); });
  if (dtype && !is_recorded && dtype != declared) {
    const bool has_new_key = config.contains("dtype");
    if (has_new_key) config["dtype"] = name(*dtype);
    if (!has_new_key || config.contains("torch_dtype")) config["torch_dtype"] = name(*dtype);
  }
  return config.dump(2) + "\n";
}

void write_small_files(const files::Checkpoint& source, const Restoration& plan, const DequantizeOptions& options,
                       const Destination& destination) {
  if (plan.files.size() > 1) destination.write_file(files::kIndexFile, index_text(plan.files));
  if (source.config.is_object()) destination.write_file(files::kConfigFile, config_text(source, plan, options));
  for (const fs::path& name : plan.side_files) destination.copy_file(source.directory / name);
  for (const auto& [name, text] : source.generated_files) destination.write_file(name, text());
}

std::uint64_t needed_bytes(const files::Checkpoint& source, const Restoration& plan) {
  std::uint64_t total = kRoomForSmallFiles;
  for (const DataFileLayout& file : plan.files) total += file.size_bytes;
  for (const fs::path& name : plan.side_files) total += fs::file_size(source.directory / name);
  return total;
}

DequantizeSummary summary_of(const files::Checkpoint& source, const Restoration& plan) {
  DequantizeSummary out;
  out.source_bytes = source.size_bytes;
  out.result_bytes = plan.result_bytes;
  out.notes = plan.notes;
  for (const Target& target : plan.targets) {
    ++(target.record->scheme ? out.dequantized_tensors : target.is_copied() ? out.copied_tensors : out.cast_tensors);
  }
  return out;
}

DequantizeSummary write_dequantized(const fs::path& source_path, const fs::path& target,
                                    const DequantizeOptions& options) {
  files::Checkpoint source = files::open_checkpoint(source_path);
  if (options.assume_original) files::assume_original(source, *options.assume_original);
  check_apart(source_path, target);
  const Restoration plan = plan_restoration(source, options);
  Destination destination(target, {.overwrite = options.overwrite});
  destination.check_space(needed_bytes(source, plan));
  TensorWriter(source, plan, options, destination.partial_path()).run();
  write_small_files(source, plan, options, destination);
  destination.commit();
  return summary_of(source, plan);
}

}  // namespace

DequantizeSummary dequantize(const fs::path& source_path, const fs::path& path, const DequantizeOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  if (options.threads < 0)
    throw Error(ErrorCode::kInvalidArgument, "threads: " + std::to_string(options.threads) + " is negative");
  DequantizeSummary summary = with_translated_errors(
      "dequantising", source_path, [&] { return write_dequantized(source_path, destination_path(path), options); });
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return summary;
}

}  // namespace halfbyte::convert
