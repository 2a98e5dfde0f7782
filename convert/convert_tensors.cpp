#include "convert/convert_tensors.h"

#include <algorithm>

#include "convert/data_writer.h"
#include "convert/source_reader.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using files::StoredTensor;
using models::Role;

constexpr std::uint64_t kBlockBytes = std::uint64_t{8} << 20;  // of source; at least one row
constexpr std::size_t kSourceBuffers = 4;
constexpr std::size_t kResultBuffers = 3;
constexpr auto kWeightRoles = {Role::kLinear, Role::kEmbedding, Role::kHead, Role::kNorm, Role::kBias};

std::uint64_t row_bytes(const StoredTensor& tensor) {
  return static_cast<std::uint64_t>(tensor.shape.back() * size_bytes(tensor.dtype));
}

std::vector<std::uint64_t> block_sizes(const files::Checkpoint& source, const Plan& plan) {
  std::vector<std::uint64_t> out;
  for (const PlannedTensor& planned : plan.tensors) {
    const std::uint64_t unit = planned.scheme ? row_bytes(source.tensors[planned.source]) : 8;
    out.push_back(std::max<std::uint64_t>(1, kBlockBytes / unit) * unit);
  }
  return out;
}

struct PackedBuffers {
  Buffer codes;
  Buffer scale;
};

// The middle stage, on the calling thread.
class Converter {
 public:
  Converter(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options)
      : source_(source), plan_(plan), options_(options) {
    result_.tensors.resize(plan.tensors.size());
    for (std::size_t i = 0; i < kSourceBuffers; ++i) free_source_.push({}, never_);
    for (std::size_t i = 0; i < kResultBuffers; ++i) free_result_.push({}, never_);
  }

  ConversionResult run(SourceReader& reader, DataWriter& writer) {
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
    for (std::size_t i = 0; i < result_.tensors.size(); ++i) result_.tensors[i].xxh3_128 = writer.hashes()[i];
    return std::move(result_);
  }

 private:
  // Goes before the workers do, so that an error here does not leave them waiting.
  struct StopAtExit {
    std::stop_source& pipeline;
    ~StopAtExit() { pipeline.request_stop(); }
  };

  void convert_blocks(const std::stop_token& stop) {
    std::uint64_t done = 0;
    while (auto block = blocks_.pop(stop)) {
      if (options_.stop.stop_requested())
        throw Error(ErrorCode::kInterrupted, "stopped; what was written has been removed");
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
    ResultBlock out{block.tensor, block.begin, 0, block.is_last, false, std::move(block.buffer), {}, {}};
    if (planned.tied_to.empty()) {
      results_.push(std::move(out), stop);
    } else {
      recycle(std::move(out));
    }
  }

  void pack(SourceBlock& block, const PlannedTensor& planned, const std::stop_token& stop) {
    auto buffers = free_result_.pop(stop);
    if (!buffers) return;
    const StoredTensor& tensor = source_.tensors[block.tensor];
    const auto first_row = static_cast<std::int64_t>(block.begin / row_bytes(tensor));
    const auto rows = static_cast<std::int64_t>(block.buffer.bytes().size() / row_bytes(tensor));
    const std::int64_t in_features = tensor.shape[1];
    const auto codes_row = static_cast<std::uint64_t>(packed_row_bytes(*planned.scheme, in_features));
    const auto scale_row =
        static_cast<std::uint64_t>(in_features / planned.group_size * size_bytes(planned.scale_dtype));
    const quant::PackedRows out{buffers->codes.resize(static_cast<std::uint64_t>(rows) * codes_row).data(),
                                buffers->scale.resize(static_cast<std::uint64_t>(rows) * scale_row).data()};
    quant::ErrorStats stats;
    const auto bad = quant::quantize_rows(
        {block.buffer.bytes().data(), tensor.dtype, rows, in_features},
        {planned.scheme, planned.group_size, options_.search, planned.scale_dtype, options_.threads}, out, stats);
    if (bad) fail_non_finite(tensor, first_row + bad->row, bad->column, bad->value);
    auto& error = result_.tensors[block.tensor].error;
    if (!error) error.emplace();
    error->add(stats);
    results_.push({block.tensor, static_cast<std::uint64_t>(first_row) * codes_row,
                   static_cast<std::uint64_t>(first_row) * scale_row, block.is_last, true, std::move(buffers->codes),
                   std::move(buffers->scale), block.is_last ? small_parts(tensor) : std::vector<SmallPart>()},
                  stop);
    free_source_.push(std::move(block.buffer), stop);
  }

  static std::vector<SmallPart> small_parts(const StoredTensor& tensor) {
    const auto shape = std::as_bytes(std::span(tensor.shape));
    return {{files::Part::kShape, {shape.begin(), shape.end()}}};
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
    const std::int64_t index = static_cast<std::int64_t>(block.begin / width) + bad->column;
    const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
    fail_non_finite(tensor, index / columns, index % columns, bad->value);
  }

  [[noreturn]] void fail_non_finite(const StoredTensor& tensor, std::int64_t row, std::int64_t column,
                                    float value) const {
    throw Error(ErrorCode::kCorrupt, files::printable_path(source_.data_files[tensor.file]->path()) + ": tensor " +
                                         files::in_quotes(tensor.name) + ": row " + std::to_string(row) + ", column " +
                                         std::to_string(column) + " is " + std::to_string(value) +
                                         "; weights must be finite, get a sound checkpoint");
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
  const QuantizeOptions& options_;
  const std::stop_token never_;
  // Room for every buffer there is: giving one back never waits.
  Channel<Buffer> free_source_{kSourceBuffers};
  Channel<PackedBuffers> free_result_{kResultBuffers};
  Channel<SourceBlock> blocks_{kSourceBuffers};
  Channel<ResultBlock> results_{kSourceBuffers + kResultBuffers};
  ConversionResult result_;
};

}  // namespace

ConversionResult convert_tensors(const files::Checkpoint& source, const Plan& plan, const ResultLayout& layout,
                                 const QuantizeOptions& options, const files::fs::path& directory) {
  SourceReader reader(source, block_sizes(source, plan));
  DataWriter writer(directory, layout);
  ConversionResult result = Converter(source, plan, options).run(reader, writer);
  writer.sync();
  return result;
}

}  // namespace halfbyte::convert
