// A checkpoint as a GGUF file that llama.cpp runs. For the command line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include <halfbyte/text.h>

namespace halfbyte::convert {

struct GgufExportOptions {
  // Of the matrices: "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"; empty: as they are stored, sym_int4 as Q4_0,
  // affine_int4 as Q4_1, iq4_nl as IQ4_NL and sym_int8 as Q8_0; with `requantize` every other scheme as Q8_0.
  std::string type = {};
  bool requantize = false;  // allow what changes a packed tensor's numbers
  bool overwrite = false;
  // Called now and then with bytes of the result written and in all; from one thread at a time.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::stop_token stop = {};  // a stop removes what was written and throws kInterrupted
};

struct GgufExportSummary {
  std::uint64_t source_bytes = 0;
  std::uint64_t result_bytes = 0;
  std::int64_t exact_tensors = 0;        // packed, and the same numbers
  std::int64_t requantized_tensors = 0;  // packed, in other numbers
  std::vector<std::string> notes;
  std::vector<Text> warnings;  // as QuantizeSummary's
};

// Writes DST, which appears under its name when it is complete. Errors: kUnsupported naming the tensor and why its
// numbers cannot be said without `requantize`, a family or a tokenizer that GGUF has no name for; kAlreadyExists;
// kInvalidArgument, also a DST inside the source or the source itself; as open_checkpoint.
GgufExportSummary export_gguf(const std::filesystem::path& source, const std::filesystem::path& destination,
                              const GgufExportOptions& options = {});

}  // namespace halfbyte::convert
