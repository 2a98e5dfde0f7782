// Makes a 4-bit checkpoint from a float one. For the command line and for host programs; needs no LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <halfbyte/error.h>
#include <halfbyte/quantize.h>

namespace halfbyte::convert {

struct QuantizeOptions {
  std::string scheme = "sym_int4";
  std::int64_t group_size = 64;  // 128, 64, 32, 16, or quant's kPerChannel (0)
  quant::Search search = quant::Search::kSquaredError;
  bool nested_scales = false;  // nf4, fp4: scales in 8 bits with scales of their own (bitsandbytes's double quant)
  bool halfbyte_only = false;  // allow what no other program reads: fp4_e2m1, two families in one checkpoint
  std::vector<std::string> keep = {};  // patterns of tensors to leave as they are; win over scheme_for
  // pattern -> scheme; the last match wins; "keep" leaves as is
  std::vector<std::pair<std::string, std::string>> scheme_for = {};
  int threads = 0;  // 0: one a core
  bool overwrite = false;
  // Called now and then from the converting thread with bytes of source done and in all.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::stop_token stop = {};  // a stop removes what was written and throws kInterrupted
};

struct QuantizeSummary {
  std::uint64_t source_bytes = 0;  // tensor data
  std::uint64_t result_bytes = 0;
  std::int64_t quantized_tensors = 0;
  std::int64_t kept_tensors = 0;
  double rel_rmse = 0;  // over all quantised weights together
  double seconds = 0;
  std::vector<std::string> notes;  // what a user should hear: files that were not copied, an unknown family ...
};

// Streams SRC into DST, which appears under its name only when it is complete and synced.
// Errors: kNotFound, kAlreadyExists, kCorrupt (also NaN or infinity in a weight, with tensor, row and column),
// kUnsupported, kNoResources, kIo, kInterrupted. After an error nothing is left under DST.
QuantizeSummary quantize(const std::filesystem::path& source, const std::filesystem::path& destination,
                         const QuantizeOptions& options = {});

}  // namespace halfbyte::convert
