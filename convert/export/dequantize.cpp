// Checkpoint -> plain Hugging Face checkpoint: every tensor as float values again, nothing else changed.
#include <algorithm>
#include <chrono>

#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>

#include "convert/export/dense_values.h"
#include "convert/file_notes.h"
#include "convert/open_source.h"
#include "convert/output/finite_parts.h"
#include "convert/output/small_files.h"
#include "convert/output/stored_parts.h"
#include "convert/translated_errors.h"
#include "loader/files/directory.h"
#include "loader/files/printable.h"
#include "loader/files/translation.h"
#include "loader/files/turned_stacks.h"

namespace halfbyte::convert {
namespace {

using files::in_quotes;
using files::printable_path;
using files::TensorRecord;

struct Restoration {
  std::vector<DenseTarget> targets;  // one for each tensor on record
  Image image;
  std::vector<fs::path> side_files;  // to copy
  std::vector<Text> notes;
};

bool is_copied(const DenseTarget& target) {
  return !target.record->scheme && target.record->stored_dtype == target.dtype && !target.through;
}

// Chooses each tensor's dtype and counts what a user should hear of.
class OutputDtype {
 public:
  explicit OutputDtype(std::optional<Dtype> asked) : asked_(asked) {
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
                                               ", which is not written back; give " + Option::kDtype + " float32");
    }
    ++unknown_;
    return Dtype::kFloat32;
  }

  void add_notes(std::vector<Text>& notes) const {
    if (unknown_ > 0) {
      notes.push_back("the original dtype of " + counted_tensors(unknown_) + " is not on record: written as float32; " +
                      Option::kAssumeOriginal + " or " + Option::kDtype + " chooses another");
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

ImageRecord image_record(const files::Checkpoint& source, const DenseTarget& target) {
  const TensorRecord& record = *target.record;
  const files::StoredTensor& codes = *source.find(record.parts[files::Part::kCodes]);
  ImageRecord out;
  out.source_file = files::file_on_disk(source, codes.file);
  if (is_copied(target)) {
    out.parts = {{record.name, target.dtype, record.shape, codes.size_bytes, 0}};
    out.source = stored_parts({stored_bytes(source, codes)});
    check_finite_parts(source, record, out);
  } else {
    out.parts = {output_tensor(record.name, target.dtype, target.shape())};
    out.source = dense_part(source, target);
  }
  return out;
}

Restoration plan_restoration(const files::Checkpoint& source, const DequantizeOptions& options) {
  Restoration out;
  OutputDtype choose(options.dtype);
  std::vector<ImageRecord> records;
  for (const TensorRecord& record : source.manifest.tensors) {
    DenseTarget& target = out.targets.emplace_back(dense_target(source, record, choose(record)));
    target.remedy = "give " + Option::kDtype + (target.dtype == Dtype::kFloat16 ? " float32 or bfloat16" : " float32");
    records.push_back(image_record(source, target));
  }
  choose_side_files(source, out);
  const std::vector<Text> file = file_notes(source);
  out.notes.insert(out.notes.begin(), file.begin(), file.end());
  choose.add_notes(out.notes);
  out.image = lay_out_image(std::move(records), 0);
  return out;
}

// The one dtype of all the weights, or nothing.
std::optional<Dtype> common_dtype(const Restoration& plan) {
  std::optional<Dtype> out;
  for (const DenseTarget& target : plan.targets) {
    if (!is_weight_dtype(target.dtype)) continue;
    if (out && *out != target.dtype) return std::nullopt;
    out = target.dtype;
  }
  return out;
}

// As the source had it, less the quantisation. The dtype is said again where it was said, if it has changed.
std::string config_text(const files::Checkpoint& source, const Restoration& plan, const DequantizeOptions& options) {
  nlohmann::ordered_json config = *source.config;
  if (source.is_quantized()) config.erase("quantization_config");
  const std::optional<Dtype> declared = models::declared_dtype(nlohmann::json(config));
  const std::optional<Dtype> dtype = options.dtype ? options.dtype : common_dtype(plan);
  // A model of mixed dtypes keeps its word, and so does one whose recorded dtypes are written.
  const bool is_recorded =
      !options.dtype && !options.assume_original && std::ranges::all_of(plan.targets, [](const DenseTarget& target) {
        return target.record->original_dtype.has_value();
      });
  if (dtype && !is_recorded && dtype != declared) {
    const bool has_new_key = config.contains("dtype");
    if (has_new_key) config["dtype"] = name(*dtype);
    if (!has_new_key || config.contains("torch_dtype")) config["torch_dtype"] = name(*dtype);
  }
  return config.dump(2) + "\n";
}

void write_small_files(const files::Checkpoint& source, const Restoration& plan, const DequantizeOptions& options,
                       const Destination& destination) {
  SmallFiles out(source, destination);
  out.write_index(plan.image.files);
  if (source.has_config()) out.write(files::kConfigFile, config_text(source, plan, options));
  for (const fs::path& name : plan.side_files) out.copy(name);
  out.write_generated();
}

DequantizeSummary summary_of(const files::Checkpoint& source, const Restoration& plan) {
  DequantizeSummary out;
  out.source_bytes = source.size_bytes;
  out.result_bytes = plan.image.size_bytes;
  out.notes = plan.notes;
  for (const DenseTarget& target : plan.targets) {
    ++(target.record->scheme ? out.dequantized_tensors : is_copied(target) ? out.copied_tensors : out.cast_tensors);
  }
  return out;
}

DequantizeSummary write_dequantized(const fs::path& source_path, const fs::path& target,
                                    const DequantizeOptions& options) {
  files::Checkpoint source = open_source(source_path, options.assume_original);
  files::turn_as_stored(source);
  check_apart(source_path, target);
  const Restoration plan = plan_restoration(source, options);
  Destination destination(target, {.overwrite = options.overwrite});
  destination.check_space(plan.image.file_bytes() + small_file_bytes(source));
  destination.fill([&] {
    write_image(plan.image, destination.partial_path(),
                {.threads = options.threads, .progress = options.progress, .stop = options.stop});
    write_small_files(source, plan, options, destination);
  });
  DequantizeSummary out = summary_of(source, plan);
  out.warnings = destination.warnings();
  return out;
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
