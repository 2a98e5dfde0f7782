#include "convert/memory.h"

#include <algorithm>
#include <span>

#include "convert/small_parts.h"
#include "loader/files/printable.h"
#include "loader/files/turned_stacks.h"
#include "quant/threads.h"

namespace halfbyte::convert {
namespace {

using files::StoredTensor;

// Larger ones would not stay in a core's own cache from the reading to the writing.
constexpr std::uint64_t kLargestBlock = std::uint64_t{512} << 10;
constexpr std::uint64_t kSmallestBlock = std::uint64_t{128} << 10;
// Blocks of kept tensors are smaller: they are read into the result's buffers.
constexpr std::uint64_t kKeptShare = 4;
// While a result waits for its turn to be written its thread goes on with another.
constexpr std::uint64_t kResultBuffersAThread = 2;
// A tensor begins while the one before is finished.
constexpr std::uint64_t kTensorsAtOnce = 2;
// What a program has before its first block: code, libraries, thread stacks, reading and copying files in pieces.
constexpr std::uint64_t kFixedBytes = std::uint64_t{12} << 20;
// Descriptions of a tensor: stored, planned, laid out, in the result's header, in both manifests and their texts.
constexpr std::uint64_t kBytesATensor = 8 << 10;
constexpr std::uint64_t kStatsBytes = sizeof(quant::ErrorStats);
// A tile is sixteen groups of floats and of codes; see quant::quantize_rows.
constexpr std::uint64_t kTileBytesAWeight = 64;
constexpr std::uint64_t kCodeBytesAWeightAndBit = 2;
// A row of floats, and what each group of 16 weights wants; see quant::RowScaleSearch.
constexpr std::uint64_t kRowBytesAWeight = 5;

// Groups that stay together in one block: those that share something of a part.
std::uint64_t unit_groups(std::span<const Growth> growths) noexcept {
  std::uint64_t most = 1;
  for (const Growth& each : growths) most = std::max(most, each.groups);
  return most;
}

// Of a whole tensor, as they are gathered and as they are stored.
std::uint64_t gathered_bytes(std::span<const Growth> growths, std::uint64_t groups) noexcept {
  std::uint64_t total = 0;
  for (const Growth& each : growths) total += 2 * (groups / each.groups * each.bytes);
  return total;
}

// One tensor's share of the memory in use while it passes.
struct Needs {
  std::uint64_t block = 0;  // of the source
  std::uint64_t source = 0;
  std::uint64_t codes = 0;
  std::uint64_t scale = 0;
  std::uint64_t stats = 0;
  std::uint64_t tile = 0;
  std::uint64_t rest = 0;  // what is gathered of a whole tensor

  std::uint64_t total(std::uint64_t threads) const noexcept {
    return threads * (source + tile + kResultBuffersAThread * (codes + scale + stats)) + kTensorsAtOnce * rest;
  }
};

Needs needs_of(const StoredTensor& tensor, const PlannedTensor& planned, std::uint64_t block) {
  if (!planned.scheme) {
    const std::uint64_t kept = std::min(block / kKeptShare, tensor.size_bytes);
    return {.block = kept, .codes = kept};
  }
  const GroupBytes group = group_bytes(tensor, planned);
  const std::vector<Growth> growths = gathered_parts(packed_record(tensor, planned));
  const std::uint64_t unit = unit_groups(growths);
  const std::uint64_t all = tensor.size_bytes / group.source;
  const std::uint64_t groups = std::min(std::max<std::uint64_t>(1, block / (unit * group.source)) * unit, all);
  const std::uint64_t tile =
      kTileBytesAWeight + kCodeBytesAWeightAndBit * static_cast<std::uint64_t>(planned.scheme->bits);
  const bool has_rows = has_row_scales(*planned.scheme);  // which are quantised as a whole
  const std::uint64_t row = has_rows ? kRowBytesAWeight * static_cast<std::uint64_t>(tensor.shape.back()) : 0;
  return {groups * group.source,       groups * group.source, groups * group.codes,
          groups * group.scale,        groups * kStatsBytes,  tile * static_cast<std::uint64_t>(group.weights) + row,
          gathered_bytes(growths, all)};
}

class MemoryPlanner {
 public:
  MemoryPlanner(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options)
      : source_(source),
        plan_(plan),
        limit_(options.memory_limit),
        threads_(static_cast<std::uint64_t>(options.threads > 0 ? options.threads : quant::max_threads())),
        fixed_(kFixedBytes + plan.tensors.size() * kBytesATensor +
               (source.row_stacks.empty() ? 0 : files::turning_bytes())) {}

  // Fewer threads only where the smallest blocks leave no room for all.
  MemoryPlan run() const {
    for (std::uint64_t threads = threads_; threads > 0; threads /= 2) {
      for (std::uint64_t block = kLargestBlock; block >= kSmallestBlock; block /= 2) {
        const Needs most = largest(block);
        if (fixed_ + most.total(threads) <= limit_) return cut(block, threads, most);
      }
    }
    refuse();
  }

 private:
  Needs needs(std::size_t i, std::uint64_t block) const {
    return needs_of(source_.tensors[plan_.tensors[i].source], plan_.tensors[i], block);
  }

  // Buffers pass from tensor to tensor: each is as large as any tensor wants it.
  Needs largest(std::uint64_t block) const {
    Needs out;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const Needs one = needs(i, block);
      for (auto member : {&Needs::source, &Needs::codes, &Needs::scale, &Needs::stats, &Needs::tile, &Needs::rest})
        out.*member = std::max(out.*member, one.*member);
    }
    return out;
  }

  MemoryPlan cut(std::uint64_t block, std::uint64_t threads, const Needs& most) const {
    MemoryPlan out;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i)
      out.block_bytes.push_back(std::max<std::uint64_t>(needs(i, block).block, 1));
    out.threads = static_cast<int>(threads);
    out.result_buffers = threads * kResultBuffersAThread;
    out.source_buffer = most.source;
    out.codes_buffer = most.codes;
    out.scale_buffer = most.scale;
    return out;
  }

  [[noreturn]] void refuse() const {
    const std::uint64_t needed = fixed_ + largest(kSmallestBlock).total(1);
    const std::string limit = "the memory limit is " + files::printable_bytes(limit_);
    const Text cure = "give " + Option::kMemoryLimit + " " + std::to_string((needed + 999'999) / 1'000'000) + "MB";
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const Needs one = needs(i, kSmallestBlock);
      if (one.source <= kSmallestBlock || fixed_ + one.total(1) <= limit_) continue;
      throw Error(ErrorCode::kNoResources,
                  "tensor " + files::in_quotes(source_.tensors[plan_.tensors[i].source].name) +
                      ": one scale for a row of " + std::to_string(plan_.tensors[i].group_size) + " weights needs " +
                      files::printable_bytes(fixed_ + one.total(1)) + ", " + limit + "; " + cure + " or a group size");
    }
    throw Error(ErrorCode::kNoResources,
                limit + ", this conversion needs " + files::printable_bytes(needed) + "; " + cure);
  }

  const files::Checkpoint& source_;
  const Plan& plan_;
  std::uint64_t limit_;
  std::uint64_t threads_;
  std::uint64_t fixed_;
};

}  // namespace

GroupBytes group_bytes(const StoredTensor& tensor, const PlannedTensor& planned) {
  return {planned.group_size, static_cast<std::uint64_t>(planned.group_size * size_bytes(tensor.dtype)),
          static_cast<std::uint64_t>(packed_row_bytes(*planned.scheme, planned.group_size)),
          static_cast<std::uint64_t>(size_bytes(planned.scale_dtype))};
}

MemoryPlan plan_memory(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options) {
  return MemoryPlanner(source, plan, options).run();
}

}  // namespace halfbyte::convert
