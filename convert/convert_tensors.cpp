#include "convert/convert_tensors.h"

#include <algorithm>
#include <optional>

#include "convert/data_writer.h"
#include "convert/small_parts.h"
#include "convert/source_reader.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using files::StoredTensor;
using models::Role;

constexpr auto kWeightRoles = {Role::kLinear, Role::kEmbedding, Role::kHead, Role::kNorm, Role::kBias};

using Finished = std::vector<std::optional<FinishedTensor>>;  // one for each of Plan::tensors

struct PackedBuffers {
  Buffer codes;
  Buffer scale;
};

// The middle stage, on the calling thread.
class Converter {
 public:
  Converter(const files::Checkpoint& source, const Plan& plan, const MemoryPlan& memory, const QuantizeOptions& options)
      : source_(source), plan_(plan), memory_(memory), options_(options) {
    for (std::size_t i = 0; i < kSourceBuffers; ++i) free_source_.push(Buffer(memory.source_buffer), never_);
    for (std::size_t i = 0; i < kResultBuffers; ++i)
      free_result_.push({Buffer(memory.codes_buffer), Buffer(memory.scale_buffer)}, never_);
  }

  ConversionResult run(SourceReader& reader, DataWriter& writer, const Finished& finished) {
    for (std::size_t i = 0; i < finished.size(); ++i) {
      if (finished[i]) result_.resumed_bytes += source_.tensors[plan_.tensors[i].source].size_bytes;
    }
    std::stop_source pipeline;
    Worker reading(pipeline, [&](const std::stop_token& stop) { reader.run(free_source_, blocks_, stop); });
    Worker writing(pipeline, [&](const std::stop_token& stop) {
      writer.run(
          results_, [this](ResultBlock block) { recycle(std::move(block)); }, stop);
    });
    const StopAtExit stop_at_exit{pipeline};
    convert_blocks(pipeline.get_token());
    results_.close();
    reading.join();
    writing.join();
    result_.source_hashes = reader.hashes();
    result_.tensors = writer.results();
    for (std::size_t i = 0; i < finished.size(); ++i) {
      if (finished[i]) result_.tensors[i] = finished[i]->result;
    }
    return std::move(result_);
  }

 private:
  // Goes before the workers do, so that an error here does not leave them waiting.
  struct StopAtExit {
    std::stop_source& pipeline;
    ~StopAtExit() { pipeline.request_stop(); }
  };

  void convert_blocks(const std::stop_token& stop) {
    std::uint64_t done = result_.resumed_bytes;
    while (auto block = blocks_.pop(stop)) {
      if (options_.stop.stop_requested()) throw Error(ErrorCode::kInterrupted, "stopped");
      done += block->buffer.bytes().size();
      const PlannedTensor& planned = plan_.tensors[block->tensor];
      if (planned.scheme) {
        pack(*block, planned, stop);
      } else {
        keep(*block, planned, stop);
      }
      if (options_.progress) options_.progress(done, source_.size_bytes);
    }
  }

  void keep(SourceBlock& block, const PlannedTensor& planned, const std::stop_token& stop) {
    check_finite(block, planned);
    ResultBlock out{block.tensor, block.begin, 0, block.is_last, false, std::move(block.buffer), {}, {}, {}};
    out.finished.source_hash = std::move(block.source_hash);
    if (planned.tied_to.empty()) {
      results_.push(std::move(out), stop);
    } else {
      recycle(std::move(out));
    }
  }

  // Groups are given to quantise_rows as rows of their own, so that a block may begin and end in the middle of a row;
  // errors are added up group by group, in an order that does not depend on the blocks.
  void pack(SourceBlock& block, const PlannedTensor& planned, const std::stop_token& stop) {
    auto buffers = free_result_.pop(stop);
    if (!buffers) return;
    const StoredTensor& tensor = source_.tensors[block.tensor];
    const GroupBytes group = group_bytes(tensor, planned);
    const std::uint64_t first = block.begin / group.source;
    const std::uint64_t groups = block.buffer.bytes().size() / group.source;
    const quant::FloatRows rows{block.buffer.bytes().data(), tensor.dtype, static_cast<std::int64_t>(groups),
                                group.weights};
    quant::QuantizeOptions how{planned.scheme, group.weights, options_.search,
                               planned.is_nested ? Dtype::kFloat32 : planned.scale_dtype,
                               memory_.threads[block.tensor]};
    if (block.begin == 0) start_tensor(rows, how, planned, tensor.size_bytes / group.source);
    const quant::NestedScales nested{quant::nested_codebook(), extras_.nested_offset.value_or(0.0f)};
    if (planned.is_nested) how.nested = &nested;
    const auto bad = quant::quantize_rows(
        rows, how,
        {buffers->codes.resize(groups * group.codes).data(), buffers->scale.resize(groups * group.scale).data(),
         extras_.zero_points.data() + (planned.scheme->has_zero_point ? first : 0),
         extras_.nested_scales.data() + (planned.is_nested ? first / kNestedBlock : 0)},
        error_);
    if (bad)
      fail_non_finite(tensor, (static_cast<std::int64_t>(first) + bad->row) * group.weights + bad->column, bad->value);
    results_.push({block.tensor,
                   first * group.codes,
                   first * group.scale,
                   block.is_last,
                   true,
                   std::move(buffers->codes),
                   std::move(buffers->scale),
                   block.is_last ? small_parts(tensor, planned, extras_) : std::vector<SmallPart>(),
                   {std::move(block.source_hash), {{}, error_, extras_.nested_offset}}},
                  stop);
    free_source_.push(std::move(block.buffer), stop);
  }

  void start_tensor(const quant::FloatRows& first_rows, const quant::QuantizeOptions& how, const PlannedTensor& planned,
                    std::uint64_t groups) {
    error_ = {};
    extras_ = {};
    if (planned.scheme->has_zero_point) extras_.zero_points.resize(groups);
    if (!planned.is_nested) return;
    extras_.nested_offset = quant::nested_offset(first_rows, how);
    extras_.nested_scales.resize((groups + kNestedBlock - 1) / kNestedBlock);
  }

  // Buffers, and what is no known kind of weight, may hold infinities: attention masks do.
  void check_finite(const SourceBlock& block, const PlannedTensor& planned) const {
    const StoredTensor& tensor = source_.tensors[block.tensor];
    const bool is_weight = std::ranges::find(kWeightRoles, planned.role) != kWeightRoles.end();
    if (!is_weight || !is_weight_dtype(tensor.dtype) || tensor.size_bytes == 0) return;
    const auto width = static_cast<std::uint64_t>(size_bytes(tensor.dtype));
    const auto count = static_cast<std::int64_t>(block.buffer.bytes().size() / width);
    const auto bad = quant::find_non_finite({block.buffer.bytes().data(), tensor.dtype, 1, count}, options_.threads);
    if (!bad) return;
    fail_non_finite(tensor, static_cast<std::int64_t>(block.begin / width) + bad->column, bad->value);
  }

  // `index` counts weights from the start of the tensor.
  [[noreturn]] void fail_non_finite(const StoredTensor& tensor, std::int64_t index, float value) const {
    const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
    throw Error(ErrorCode::kCorrupt, files::printable_path(source_.data_files[tensor.file]->path()) + ": tensor " +
                                         files::in_quotes(tensor.name) + ": row " + std::to_string(index / columns) +
                                         ", column " + std::to_string(index % columns) + " is " +
                                         std::to_string(value) + "; weights must be finite, get a sound checkpoint");
  }

  void recycle(ResultBlock block) {
    if (block.is_packed) {
      free_result_.push({std::move(block.codes), std::move(block.scale)}, never_);
    } else {
      free_source_.push(std::move(block.codes), never_);
    }
  }

  const files::Checkpoint& source_;
  const Plan& plan_;
  const MemoryPlan& memory_;
  const QuantizeOptions& options_;
  const std::stop_token never_;
  // Room for every buffer there is: giving one back never waits.
  Channel<Buffer> free_source_{kSourceBuffers};
  Channel<PackedBuffers> free_result_{kResultBuffers};
  Channel<SourceBlock> blocks_{kSourceBuffers};
  Channel<ResultBlock> results_{kSourceBuffers + kResultBuffers};
  quant::ErrorStats error_;  // of the tensor that is being quantised, up to here
  GroupExtras extras_;       // likewise
  ConversionResult result_;
};

// What an earlier run said it had finished, as far as the bytes are there.
Finished check_finished(const Workplace& workplace, const Plan& plan, const QuantizeOptions& options,
                        DataWriter& writer) {
  Finished out(plan.tensors.size());
  std::uint64_t done = 0;
  for (const auto& [tensor, finished] : workplace.finished) {
    if (options.stop.stop_requested()) throw Error(ErrorCode::kInterrupted, "stopped");
    if (tensor >= plan.tensors.size() || !plan.tensors[tensor].tied_to.empty()) continue;
    if (!writer.holds(tensor, finished.result.xxh3_128)) continue;
    out[tensor] = finished;
    done += plan.tensors[tensor].bytes_before;
    if (options.progress) options.progress(done, plan.bytes_before);
  }
  return out;
}

}  // namespace

ConversionResult convert_tensors(const files::Checkpoint& source, const Plan& plan, const ResultLayout& layout,
                                 const MemoryPlan& memory, const QuantizeOptions& options, const Workplace& workplace) {
  DataWriter writer(workplace.directory, layout, workplace.journal);
  const Finished finished = check_finished(workplace, plan, options, writer);
  SourceReader reader(source, memory.block_bytes, finished);
  ConversionResult result = Converter(source, plan, memory, options).run(reader, writer, finished);
  writer.sync();
  return result;
}

}  // namespace halfbyte::convert
