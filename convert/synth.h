// Random-weight checkpoints: of real models' shapes, for measuring without downloading, or of a config, for training
// one from scratch. Streams; never holds the model.
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

#include "convert/synth_shapes.h"

namespace halfbyte::convert {

struct SynthOptions {
  std::string like = "llama-1.1b";  // a name of synth_shapes()
  // Whose shape it is instead: a config.json, or a directory with one; the tokenizer beside it is copied. Empty: none.
  std::filesystem::path config = {};
  std::int64_t layers = 0;  // the first so many; 0: all
  SynthExperts experts = SynthExperts::kUsual;
  std::optional<Dtype> dtype = {};  // nothing: the config's, or bfloat16
  std::uint64_t seed = 0;
  std::uint64_t shard_bytes = 1'000'000'000;
  bool overwrite = false;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::stop_token stop = {};
};

struct SynthSummary {
  Dtype dtype = Dtype::kBfloat16;
  std::uint64_t size_bytes = 0;  // of tensor data
  std::vector<Text> warnings;    // as QuantizeSummary's
};

// The same bytes for the same options, whatever the machine. Errors: as quantize(); kInvalidArgument also for more
// layers than the model has, and experts that its family does not store so; kUnsupported for a config of no family that
// is known.
SynthSummary synth(const std::filesystem::path& destination, const SynthOptions& options);

}  // namespace halfbyte::convert
