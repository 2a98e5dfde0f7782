#include "convert/conversion.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <string>

#include "convert/budget/decide.h"
#include "convert/export/dequantized_view.h"
#include "convert/file_notes.h"
#include "convert/open_source.h"
#include "convert/output/destination.h"
#include "convert/provenance.h"
#include "convert/shares.h"
#include "convert/translated_errors.h"
#include "loader/files/turned_stacks.h"

namespace halfbyte::convert {
namespace {

using Clock = std::chrono::steady_clock;
using files::Checkpoint;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void check_threads(const QuantizeOptions& options) {
  if (options.threads < 0)
    throw Error(ErrorCode::kInvalidArgument, "threads: " + std::to_string(options.threads) + " is negative");
}

Checkpoint open(const fs::path& path, const QuantizeOptions& options) {
  check_threads(options);
  check_part(options);  // before anything is measured
  return open_source(path, options.assume_original);
}

Text requantize_warning(const Checkpoint& source) {
  return "the source is quantised already (" + source.kind +
         "): its errors stay, and those of another rounding are added; the original would be better";
}

bool has_target(const QuantizeOptions& options) { return options.target_bpw > 0 || options.target_size > 0; }

// Experts that are packed hold rows, and those that stay as they are what their family stores.
Checkpoint with_rows_to_pack(Checkpoint source, const QuantizeOptions& options) {
  const auto may_turn = [&](const files::StoredTensor& tensor) { return files::holds_columns(source, tensor); };
  if (source.row_stacks.empty() && std::ranges::none_of(source.tensors, may_turn)) return source;
  std::set<std::string> names;
  QuantizeOptions for_names = options;
  for_names.halfbyte_only = true;  // whether that is allowed, the plan itself says
  for (const PlannedTensor& planned : plan(source, for_names).tensors) {
    const files::StoredTensor& tensor = source.tensors[planned.source];
    const bool is_row_stack = source.row_stacks.contains(tensor.name);
    if (planned.scheme ? files::holds_columns(source, tensor) : is_row_stack) names.insert(tensor.name);
  }
  files::turn_stacks(source, names);
  return source;
}

Quantization quantization_of(const Checkpoint& source, const QuantizeOptions& options) {
  Quantization out;
  out.plan = plan(source, options);
  out.layout = lay_out(source, out.plan, options.shard_size);
  out.memory = plan_memory(source, out.plan, options);
  return out;
}

// As messages name it: one in memory has no path.
const fs::path& place_of(const fs::path& path, const Checkpoint& source) {
  return path.empty() ? source.directory : path;
}

void check_keep_packed(const fs::path& path, const Checkpoint& source, const QuantizeOptions& options) {
  if (options.requantize)
    throw Error(ErrorCode::kInvalidArgument,
                Option::kKeepPacked + " and " + Option::kRequantize + " exclude each other");
  if (source.is_quantized()) return;
  throw Error(ErrorCode::kInvalidArgument,
              Option::kKeepPacked + ": nothing of " + files::printable_path(place_of(path, source)) + " is packed");
}

Conversion quantized(const fs::path& path, Checkpoint source, QuantizeOptions options) {
  Text warning;
  if (options.keep_packed) {
    check_keep_packed(path, source, options);
    std::erase_if(source.side_files, is_quantization_file);
  } else if (source.is_quantized() && may_requantize(options)) {
    warning = requantize_warning(source);
    source = dequantized_view(std::move(source));
  }
  if (has_target(options)) {
    Checkpoint as_found = source;
    budget::decide(with_rows_to_pack(std::move(source), options), options);
    source = std::move(as_found);  // what there is room for stays as it was
  }
  source = with_rows_to_pack(std::move(source), options);
  Quantization work = quantization_of(source, options);
  return {path, std::move(options), std::make_shared<const Checkpoint>(std::move(source)), std::move(work),
          std::move(warning)};
}

Conversion repacked(const fs::path& path, Checkpoint source, const QuantizeOptions& options) {
  if (!source.is_quantized()) {
    throw Error(ErrorCode::kInvalidArgument,
                files::printable_path(path) + ": nothing in it is quantised, so there is nothing to repack");
  }
  const auto held = std::make_shared<const Checkpoint>(std::move(source));  // which the image refers to
  Repacking work = repacking_of(*held, options.shard_size);
  return {path, options, held, std::move(work)};
}

Conversion decided(const fs::path& path, Checkpoint source, const QuantizeOptions& options) {
  const bool keeps_codes =
      source.is_quantized() && options.keep_codes && !options.keep_packed && !may_requantize(options);
  return keeps_codes ? repacked(path, std::move(source), options) : quantized(path, std::move(source), options);
}

template <class Decide>
Conversion prepared(std::string_view doing, const fs::path& path, const QuantizeOptions& options,
                    const Decide& decide) {
  const Clock::time_point start = Clock::now();
  Conversion out = with_translated_errors(doing, path, [&] { return decide(path, open(path, options), options); });
  out.seconds = seconds_since(start);
  return out;
}

QuantizeSummary run_kind(const Conversion& conversion, const fs::path& destination) {
  const auto* quantization = std::get_if<Quantization>(&conversion.work);
  if (conversion.options.resume && conversion.options.restart)
    throw Error(ErrorCode::kInvalidArgument, Option::kResume + " and " + Option::kRestart + " exclude each other");
  check_part(conversion.options);
  if (!quantization && (conversion.options.part || conversion.options.finish)) {
    throw Error(ErrorCode::kInvalidArgument,
                (conversion.options.part ? Option::kPart : Option::kFinish) + ": " + keeps_codes_text());
  }
  if (!quantization && conversion.options.resume)
    throw Error(ErrorCode::kInvalidArgument, Option::kResume + ": " + keeps_codes_text());
  const fs::path path = destination_path(destination);
  if (!conversion.source_path.empty()) check_apart(conversion.source_path, path);
  if (quantization) return run_quantization(conversion, *quantization, path);
  return run_repacking(conversion, std::get<Repacking>(conversion.work), path);
}

QuantizeOptions options_of(const RepackOptions& options) {
  return {.assume_original = options.assume_original,
          .threads = options.threads,
          .shard_size = options.shard_size,
          .keep_codes = true,
          .overwrite = options.overwrite,
          .progress = options.progress,
          .stop = options.stop};
}

}  // namespace

Text keeps_codes_text() {
  return "the source is quantised already and keeps its codes; say " + Option::kScheme + " to quantise it again";
}

Conversion prepare(const fs::path& source, const QuantizeOptions& options) {
  return prepared("converting", source, options, decided);
}

Conversion prepare(Checkpoint source, const QuantizeOptions& options) {
  const Clock::time_point start = Clock::now();
  check_threads(options);
  if (options.assume_original) files::assume_original(source, *options.assume_original);
  const fs::path place = source.directory;
  Conversion out = with_translated_errors("converting", place, [&] { return decided({}, std::move(source), options); });
  out.seconds = seconds_since(start);
  return out;
}

Conversion prepare_repacking(const fs::path& source, const QuantizeOptions& options) {
  return prepared("repacking", source, options, repacked);
}

QuantizeSummary run(const Conversion& conversion, const fs::path& destination) {
  const Clock::time_point start = Clock::now();
  const bool is_repacking = std::holds_alternative<Repacking>(conversion.work);
  QuantizeSummary out = with_translated_errors(is_repacking ? "repacking" : "converting",
                                               place_of(conversion.source_path, *conversion.source),
                                               [&] { return run_kind(conversion, destination); });
  out.seconds = conversion.seconds + seconds_since(start);
  return out;
}

QuantizeSummary quantize(const fs::path& source, const fs::path& destination, const QuantizeOptions& options) {
  const Conversion conversion = prepare(source, options);
  QuantizeSummary out = run(conversion, destination);
  if (!conversion.warning.empty()) out.notes.insert(out.notes.begin(), conversion.warning);
  return out;
}

QuantizeSummary repack(const fs::path& source, const fs::path& destination, const RepackOptions& options) {
  return run(prepare_repacking(source, options_of(options)), destination);
}

}  // namespace halfbyte::convert
