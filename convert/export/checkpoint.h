// A quantised checkpoint as another program's: compressed-tensors, bitsandbytes, GPTQ, AWQ. For the command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <halfbyte/dtype.h>
#include <halfbyte/text.h>

namespace halfbyte::convert {

struct ExportOptions {
  std::string format = {};  // "compressed-tensors", "bitsandbytes", "gptq", "awq"
  bool requantize = false;  // allow what changes a packed tensor's numbers
  bool overwrite = false;
  // What tensors were of which the source does not say it: the dtype of those that are written dense.
  std::optional<Dtype> assume_original = {};
  int threads = 0;  // 0: one a core
  // Called now and then with bytes of the result written and in all; from one thread at a time.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::stop_token stop = {};  // a stop removes what was written and throws kInterrupted
};

struct ExportSummary {
  std::uint64_t source_bytes = 0;  // tensor data
  std::uint64_t result_bytes = 0;
  std::int64_t exact_tensors = 0;        // packed, and the same numbers
  std::int64_t rounded_tensors = 0;      // packed, the same codes, scales rounded
  std::int64_t requantized_tensors = 0;  // packed, in other codes
  std::int64_t dequantized_tensors = 0;  // packed before, and dense now
  double rel_rmse = 0;                   // of what was quantised again, against the numbers before
  double seconds = 0;
  std::vector<Text> notes;     // for the user
  std::vector<Text> warnings;  // as QuantizeSummary's
};

// The names that `format` takes.
std::vector<std::string> export_formats();

// Writes DST, which appears under its name when it is complete. Tensors that are not packed are copied in the dtype
// they have. Errors: kUnsupported naming the tensor and why the format cannot say its numbers, without `requantize`;
// a source that is not quantised; kInvalidArgument (an unknown format; the two directories lie within each other);
// kAlreadyExists; as open_checkpoint.
ExportSummary export_checkpoint(const std::filesystem::path& source, const std::filesystem::path& destination,
                                const ExportOptions& options);

}  // namespace halfbyte::convert
