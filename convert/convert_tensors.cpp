#include "convert/convert_tensors.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>

#include "convert/buffer.h"
#include "convert/calibrator.h"
#include "convert/channel.h"
#include "convert/in_order.h"
#include "convert/output/data_writer.h"
#include "convert/output/write_progress.h"
#include "convert/small_parts.h"
#include "convert/source_reader.h"
#include "loader/files/finite.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using files::StoredTensor;

using Finished = std::vector<std::optional<FinishedTensor>>;  // one for each of Plan::tensors

std::uint64_t bytes_of(const Plan& plan, const std::vector<bool>& share) {
  if (share.empty()) return plan.bytes_before;
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < share.size(); ++i) out += share[i] ? plan.tensors[i].bytes_before : 0;
  return out;
}

// A tensor while its blocks pass.
struct TensorState {
  files::TensorRecord record;  // as far as it is known
  GatheredParts gathered;
  quant::ErrorStats error;  // up to the last block that was written
};

// What becomes of a block. A kept tensor's bytes are read into `codes`.
struct ResultBuffers {
  Buffer codes;
  Buffer scale;
  std::vector<quant::ErrorStats> group_stats;
};

struct ConvertedBlock {
  SourceBlock source;
  ResultBuffers buffers;
  std::string source_hash;             // FinishedTensor's; in the last block of a tensor
  std::shared_ptr<TensorState> state;  // packed only
  std::exception_ptr failure;          // thrown when its turn comes: the first one in the source's order counts
};

// Every thread takes the next block, reads it, quantises it while it is in its cache, and hands it on; what must be
// done in order (both hashes, sums of errors, writing, the journal) is done by whichever thread comes by.
class Converter {
 public:
  Converter(const files::Checkpoint& source, const Plan& plan, const MemoryPlan& memory, const QuantizeOptions& options,
            const Finished& finished, const std::vector<bool>& share, DataWriter& writer)
      : source_(source),
        plan_(plan),
        memory_(memory),
        options_(options),
        finished_(finished),
        writer_(writer),
        is_share_(!share.empty()),
        progress_(options.progress, bytes_of(plan, share), options.stop),
        reader_(source, memory.block_bytes, finished, share),
        free_(memory.result_buffers) {
    for (std::size_t i = 0; i < memory.result_buffers; ++i)
      free_.push({Buffer(memory.codes_buffer), Buffer(memory.scale_buffer), {}}, {});
  }

  ConversionResult run() {
    ConversionResult out;
    for (std::size_t i = 0; i < finished_.size(); ++i) {
      if (finished_[i]) out.resumed_bytes += source_.tensors[plan_.tensors[i].source].size_bytes;
    }
    if (out.resumed_bytes > 0) progress_.add(out.resumed_bytes);
    run_threads();
    out.source_hashes = reader_.hashes();
    out.tensors = writer_.results();
    for (std::size_t i = 0; i < finished_.size(); ++i) {
      if (finished_[i]) out.tensors[i] = finished_[i]->result;
    }
    return out;
  }

 private:
  // Goes before the workers do, so that an error here does not leave them waiting.
  struct StopAtExit {
    std::stop_source& pipeline;
    ~StopAtExit() { pipeline.request_stop(); }
  };

  void run_threads() {
    std::stop_source pipeline;
    std::vector<std::unique_ptr<Worker>> others;
    const StopAtExit stop_at_exit{pipeline};
    for (int i = 1; i < memory_.threads; ++i)
      others.push_back(
          std::make_unique<Worker>(pipeline, [this](const std::stop_token& stop) { convert_blocks(stop); }));
    convert_blocks(pipeline.get_token());
    for (const auto& other : others) other->join();
  }

  void convert_blocks(const std::stop_token& stop) {
    Buffer source(memory_.source_buffer);
    // Buffers before the block: one that others wait for must not wait for theirs.
    while (auto buffers = free_.pop(stop)) {
      const auto block = reader_.next();
      if (!block) return free_.give_back(std::move(*buffers));
      ConvertedBlock out{*block, std::move(*buffers), {}, {}, {}};
      try {
        if (!convert(out, source, stop)) return;
      } catch (...) {
        out.failure = std::current_exception();
      }
      converted_.put(block->number, std::move(out));
    }
  }

  // False when stopped.
  bool convert(ConvertedBlock& block, Buffer& source, const std::stop_token& stop) {
    const PlannedTensor& planned = plan_.tensors[block.source.tensor];
    Buffer& buffer = planned.scheme ? source : block.buffers.codes;
    const std::span<const std::byte> bytes = buffer.resize(block.source.size);
    reader_.read(block.source, buffer.bytes());
    if (!in_source_order_.wait(block.source.number, stop)) return false;
    block.source_hash = reader_.hash(block.source, bytes);
    if (planned.scheme && !is_finished(block)) block.state = state_of(block, bytes);
    in_source_order_.pass();
    if (!is_finished(block)) planned.scheme ? pack(block, bytes) : check_finite(block, bytes);
    return true;
  }

  bool is_finished(const ConvertedBlock& block) const { return finished_[block.source.tensor].has_value(); }

  // Groups are given to quantize_groups as rows of their own, so that a block may begin and end in the middle of a row.
  quant::FloatRows groups_of(const ConvertedBlock& block, std::span<const std::byte> bytes) const {
    const StoredTensor& tensor = source_.tensors[block.source.tensor];
    const GroupBytes group = group_bytes(tensor, plan_.tensors[block.source.tensor]);
    return {bytes.data(), tensor.dtype, static_cast<std::int64_t>(bytes.size() / group.source), group.weights};
  }

  quant::GroupOptions how_to(const PlannedTensor& planned) const {
    return {.scheme = planned.scheme,
            .group_size = planned.group_size,
            .search = options_.search.value_or(kDefaultSearch),
            .scale_dtype = planned.is_nested ? Dtype::kFloat32 : planned.scale_dtype,
            .threads = 1};
  }

  // In the source's order: the first block of a tensor makes it for all.
  std::shared_ptr<TensorState> state_of(const ConvertedBlock& block, std::span<const std::byte> bytes) {
    if (block.source.begin > 0) return state_;
    const PlannedTensor& planned = plan_.tensors[block.source.tensor];
    const StoredTensor& tensor = source_.tensors[block.source.tensor];
    const std::uint64_t groups = tensor.size_bytes / group_bytes(tensor, planned).source;
    state_ = std::make_shared<TensorState>();
    state_->record = packed_record(tensor, planned);
    state_->gathered = GatheredParts(state_->record, groups);
    if (planned.is_nested)
      state_->record.nested_offset = quant::nested_offset(groups_of(block, bytes), how_to(planned));
    return state_;
  }

  void pack(ConvertedBlock& block, std::span<const std::byte> bytes) const {
    const StoredTensor& tensor = source_.tensors[block.source.tensor];
    const PlannedTensor& planned = plan_.tensors[block.source.tensor];
    const GroupBytes group = group_bytes(tensor, planned);
    const quant::FloatRows rows = groups_of(block, bytes);
    const auto groups = static_cast<std::uint64_t>(rows.rows);
    const std::uint64_t first = block.source.begin / group.source;
    GatheredParts& gathered = block.state->gathered;
    const quant::NestedScales nested{quant::nested_codebook(), block.state->record.nested_offset.value_or(0.0f)};
    quant::GroupOptions how = how_to(planned);
    if (planned.is_nested) how.nested = &nested;
    how.row_groups = tensor.shape.back() / planned.group_size;
    block.buffers.group_stats.resize(groups);
    const quant::PackedRows out = {block.buffers.codes.resize(groups * group.codes).data(),
                                   block.buffers.scale.resize(groups * group.scale).data(),
                                   reinterpret_cast<std::uint8_t*>(gathered.at(Part::kZeroPoint, first)),
                                   reinterpret_cast<float*>(gathered.at(Part::kNestedScale, first)),
                                   gathered.at(Part::kOffset, first),
                                   gathered.at(Part::kRowScale, first)};
    if (options_.calibrator && options_.calibrator->has(block.source.tensor)) {
      options_.calibrator->read(block.source.tensor, first, out, block.buffers.group_stats);
      return pack_scales(*planned.scheme, how.row_groups, block.buffers.scale);
    }
    const auto bad = quant::quantize_groups(rows, how, out, block.buffers.group_stats);
    if (!bad) return pack_scales(*planned.scheme, how.row_groups, block.buffers.scale);
    const std::int64_t index = (static_cast<std::int64_t>(first) + bad->row) * group.weights + bad->column;
    files::fail_non_finite(named(tensor), tensor.shape, static_cast<std::uint64_t>(index), bad->value);
  }

  // Whole rows, where scales are stored in less than a byte each: in place.
  static void pack_scales(const Scheme& scheme, std::int64_t row_groups, Buffer& scales) {
    if (!has_row_scales(scheme) || scheme.scale_bits == 8) return;
    const std::span<std::byte> bytes = scales.bytes();
    const auto groups = static_cast<std::size_t>(row_groups), rows = bytes.size() / groups;
    const auto row_bytes = static_cast<std::size_t>(row_scale_bytes(scheme, row_groups));
    for (std::size_t row = 0; row < rows; ++row)
      quant::pack_scale_bits(scheme, bytes.data() + row * groups, row_groups, bytes.data() + row * row_bytes);
    scales.shrink(rows * row_bytes);
  }

  // Units: bytes of the scales, as stored, before those of group `first`.
  static std::uint64_t scale_begin(const StoredTensor& tensor, const PlannedTensor& planned, std::uint64_t first) {
    if (!has_row_scales(*planned.scheme)) return first * group_bytes(tensor, planned).scale;
    const std::int64_t groups = tensor.shape.back() / planned.group_size;
    return first / static_cast<std::uint64_t>(groups) *
           static_cast<std::uint64_t>(row_scale_bytes(*planned.scheme, groups));
  }

  void check_finite(const ConvertedBlock& block, std::span<const std::byte> bytes) const {
    const StoredTensor& tensor = source_.tensors[block.source.tensor];
    if (!files::must_be_finite(plan_.tensors[block.source.tensor].role)) return;
    const auto bad = files::first_non_finite(tensor.dtype, bytes);
    if (!bad) return;
    const auto width = static_cast<std::uint64_t>(size_bytes(tensor.dtype));
    files::fail_non_finite(named(tensor), tensor.shape, block.source.begin / width + bad->index, bad->value);
  }

  std::string named(const StoredTensor& tensor) const {
    return files::printable_path(source_.data_files[tensor.file]->path()) + ": tensor " + files::in_quotes(tensor.name);
  }

  // In the source's order, one block at a time.
  void consume(ConvertedBlock block) {
    if (block.failure) std::rethrow_exception(block.failure);
    check_stop(options_.stop);
    const bool is_new = !is_finished(block);
    if (is_new && plan_.tensors[block.source.tensor].tied_to.empty()) write(block);
    free_.give_back(std::move(block.buffers));
    progress_.add(is_new ? block.source.size : 0);
  }

  // Errors are added up group by group, so that their sum does not depend on the blocks.
  void write(ConvertedBlock& block) {
    const std::size_t index = block.source.tensor;
    const StoredTensor& tensor = source_.tensors[index];
    const PlannedTensor& planned = plan_.tensors[index];
    ResultBlock out{.tensor = index, .codes_begin = block.source.begin, .codes = block.buffers.codes.bytes()};
    FinishedTensor finished{std::move(block.source_hash), {}, is_share_};
    std::vector<SmallPart> rest;
    if (planned.scheme) {
      const GroupBytes group = group_bytes(tensor, planned);
      const std::uint64_t first = block.source.begin / group.source;
      out = {index, first * group.codes, scale_begin(tensor, planned, first),
             true,  out.codes,           block.buffers.scale.bytes()};
      for (const quant::ErrorStats& each : block.buffers.group_stats) block.state->error.add(each);
      finished.result = {{}, block.state->error, block.state->record.nested_offset};
      if (block.source.is_last) rest = small_parts(block.state->record, block.state->gathered);
    }
    writer_.write(out);
    if (block.source.is_last) writer_.finish(index, rest, std::move(finished));
  }

  const files::Checkpoint& source_;
  const Plan& plan_;
  const MemoryPlan& memory_;
  const QuantizeOptions& options_;
  const Finished& finished_;
  DataWriter& writer_;
  const bool is_share_;
  WriteProgress progress_;  // bytes of the source
  SourceReader reader_;
  Channel<ResultBuffers> free_;
  Turnstile in_source_order_;
  std::shared_ptr<TensorState> state_;  // of the last tensor that was begun
  InOrder<ConvertedBlock> converted_{[this](ConvertedBlock block) { consume(std::move(block)); }};
};

// What an earlier run said it had finished, as far as the bytes are there.
Finished check_finished(const Workplace& workplace, const Plan& plan, const QuantizeOptions& options,
                        DataWriter& writer) {
  Finished out(plan.tensors.size());
  WriteProgress progress(options.progress, bytes_of(plan, workplace.share), options.stop);
  for (const auto& [tensor, finished] : workplace.finished) {
    check_stop(options.stop);
    if (tensor >= plan.tensors.size() || !plan.tensors[tensor].tied_to.empty()) continue;
    if (!workplace.share.empty() && !workplace.share[tensor]) continue;
    if (!writer.holds(tensor, finished.result.xxh3_128)) continue;
    out[tensor] = finished;
    progress.add(plan.tensors[tensor].bytes_before);
  }
  return out;
}

}  // namespace

ConversionResult convert_tensors(const files::Checkpoint& source, const Plan& plan, const ResultLayout& layout,
                                 const MemoryPlan& memory, const QuantizeOptions& options, const Workplace& workplace) {
  DataWriter writer(workplace.directory, layout, workplace.journal);
  const Finished finished = check_finished(workplace, plan, options, writer);
  ConversionResult result = Converter(source, plan, memory, options, finished, workplace.share, writer).run();
  writer.sync();
  return result;
}

}  // namespace halfbyte::convert
