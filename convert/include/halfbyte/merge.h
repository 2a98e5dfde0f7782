// Adapters become part of a checkpoint's weights. For the command line and for host programs; needs no LibTorch.
#pragma once

#include <optional>
#include <span>

#include <halfbyte/convert.h>
#include <halfbyte/weighted_adapter.h>

namespace halfbyte::convert {

struct MergeOptions {
  // A plain checkpoint, every tensor in the dtype on record; else merged tensors are quantised again, in the scheme on
  // record, where they were before.
  bool dequantize = false;
  std::optional<Dtype> assume_original = {};  // of tensors of which the source does not say it
  // As QuantizeOptions'.
  int threads = 0;
  std::uint64_t memory_limit = std::uint64_t{512} << 20;
  std::uint64_t shard_size = 0;
  bool overwrite = false;
  Spelling spelling = cpp_spelling();
  bool resume = false;
  bool restart = false;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
  std::stop_token stop = {};
};

// Relative errors are root mean squares over all merged weights together, divided by theirs. Nothing: an earlier run
// had done it.
struct MergeSummary {
  QuantizeSummary result = {};          // quantized_tensors: merged ones that were quantised again; rel_rmse: by that
  std::int64_t merged_tensors = 0;      // that an adapter adds to
  std::optional<double> change = {};    // what the adapters add
  std::optional<double> rounding = {};  // to the dtypes on record, which comes before quantising
};

// Streams SRC into DST with W + sum of weight * (what the adapter makes of W, less W) for each Linear that an adapter
// names: scaling * B A, or magnitude * (W + scaling * B A) / norm - W (DoRA), in float32 from the values of W, rounded
// once to the dtype on record. That is what quantize() makes of the merged plain checkpoint. All other tensors, packed
// or not, are copied. halfbyte.json says what was merged and each tensor's errors ("conversion", "merge"). Errors: as
// quantize(); kUnsupported for adapters of other kinds, and naming a module whose weight is no matrix of its own.
MergeSummary merge(const std::filesystem::path& source, std::span<const WeightedAdapter> adapters,
                   const std::filesystem::path& destination, const MergeOptions& options = {});

}  // namespace halfbyte::convert
