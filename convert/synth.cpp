#include "convert/synth.h"

#include <algorithm>
#include <array>

#include <halfbyte/error.h>

#include "convert/buffer.h"
#include "convert/channel.h"
#include "convert/output/data_file_layout.h"
#include "convert/output/destination.h"
#include "convert/output/write_behind.h"
#include "convert/synth_values.h"
#include "loader/files/directory.h"
#include "loader/files/printable.h"
#include "models/architectures/architecture.h"

namespace halfbyte::convert {
namespace {

constexpr float kDeviation = 0.02F;  // initializer_range of Llama
constexpr std::uint64_t kBlockBytes = std::uint64_t{8} << 20;
constexpr std::size_t kBuffers = 3;

struct Shape {
  std::string_view name;
  int hidden_size;
  int num_hidden_layers;
  int num_attention_heads;
  int num_key_value_heads;
  int intermediate_size;
  int vocab_size;
  int max_position_embeddings;
};

// Source: config.json of TinyLlama-1.1B and of Llama-2-7b.
constexpr auto kShapes = std::to_array<Shape>({
    {"tiny", 128, 2, 4, 2, 352, 512, 256},
    {"llama-1.1b", 2048, 22, 32, 4, 5632, 32000, 2048},
    {"llama-7b", 4096, 32, 32, 32, 11008, 32000, 4096},
});

constexpr auto kNames = [] {
  std::array<std::string_view, kShapes.size()> out{};
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = kShapes[i].name;
  return out;
}();

const Shape& shape_or_fail(const std::string& like) {
  const auto row = std::ranges::find(kShapes, like, &Shape::name);
  if (row != kShapes.end()) return *row;
  std::string known;
  for (const std::string_view name : kNames) known += (known.empty() ? "" : ", ") + std::string(name);
  throw Error(ErrorCode::kInvalidArgument, "there is no shape " + files::in_quotes(like) + "; there are " + known);
}

nlohmann::ordered_json config_of(const Shape& shape, Dtype dtype) {
  return {{"architectures", nlohmann::ordered_json::array({"LlamaForCausalLM"})},
          {"model_type", "llama"},
          {"hidden_size", shape.hidden_size},
          {"num_hidden_layers", shape.num_hidden_layers},
          {"num_attention_heads", shape.num_attention_heads},
          {"num_key_value_heads", shape.num_key_value_heads},
          {"head_dim", shape.hidden_size / shape.num_attention_heads},
          {"intermediate_size", shape.intermediate_size},
          {"vocab_size", shape.vocab_size},
          {"max_position_embeddings", shape.max_position_embeddings},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"tie_word_embeddings", false},
          {"bos_token_id", 1},
          {"eos_token_id", 2},
          {"torch_dtype", name(dtype)}};
}

std::vector<OutputTensor> tensors_of(const nlohmann::ordered_json& config, Dtype dtype) {
  const nlohmann::json plain(config);
  const models::Architecture& llama = *models::find_architecture(plain);
  std::vector<OutputTensor> out;
  for (auto& tensor : llama.expected(llama.parse(plain)))
    out.push_back(output_tensor(tensor.name, dtype, tensor.shape));
  return out;
}

std::vector<DataFileLayout> lay_out_shards(std::vector<OutputTensor> tensors, std::uint64_t shard_bytes) {
  std::vector<std::vector<OutputTensor>> shards(1);
  std::uint64_t filled = 0;
  for (OutputTensor& tensor : tensors) {
    if (filled > 0 && filled + tensor.size_bytes > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += tensor.size_bytes;
    shards.back().push_back(std::move(tensor));
  }
  std::vector<DataFileLayout> out;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    out.push_back(lay_out(data_file_name(i, shards.size()), std::move(shards[i]), {{"format", "pt"}}));
  }
  return out;
}

struct Block {
  std::size_t file;
  std::uint64_t offset;
  Buffer buffer;
};

// Values are made on the calling thread's OpenMP team while another thread writes.
class Synthesizer {
 public:
  Synthesizer(const Destination& destination, const std::vector<DataFileLayout>& layout, const SynthOptions& options)
      : layout_(layout), options_(options) {
    for (const DataFileLayout& file : layout) {
      files_.push_back(std::make_shared<files::OutputFile>(destination.partial_path() / file.name, file.size_bytes));
      files_.back()->write(0, std::as_bytes(std::span(file.header)));
      total_ += file.size_bytes - file.header.size();
    }
    for (std::size_t i = 0; i < kBuffers; ++i) free_.push({}, never_);
  }

  std::uint64_t run() {
    std::stop_source pipeline;
    Worker writing(pipeline, [this](const std::stop_token& stop) { write_blocks(stop); });
    struct StopAtExit {
      std::stop_source& pipeline;
      ~StopAtExit() { pipeline.request_stop(); }
    };
    const StopAtExit stop_at_exit{pipeline};
    for (std::size_t file = 0; file < layout_.size(); ++file) {
      for (const OutputTensor& tensor : layout_[file].tensors) make_tensor(file, tensor, pipeline.get_token());
    }
    blocks_.close();
    writing.join();
    write_behind_.finish();
    for (const auto& file : files_) file->sync();
    return total_;
  }

 private:
  void write_blocks(const std::stop_token& stop) {
    while (auto block = blocks_.pop(stop)) {
      files_[block->file]->write(block->offset, block->buffer.bytes());
      write_behind_.add(files_[block->file], block->offset, block->buffer.bytes().size());
      free_.push(std::move(block->buffer), never_);
    }
  }

  void make_tensor(std::size_t file, const OutputTensor& tensor, const std::stop_token& stop) {
    const std::uint64_t key = value_key(options_.seed, tensor.name);
    for (std::uint64_t at = 0; at < tensor.size_bytes; at += kBlockBytes) {
      if (options_.stop.stop_requested())
        throw Error(ErrorCode::kInterrupted, "stopped; what was written has been removed");
      auto buffer = free_.pop(stop);
      if (!buffer) return;  // the writer failed; join() says why
      const auto bytes = buffer->resize(std::min(kBlockBytes, tensor.size_bytes - at));
      const bool is_norm = tensor.shape.size() == 1;
      if (is_norm) {
        fill_ones(tensor.dtype, bytes);
      } else {
        fill_normal(key, at / static_cast<std::uint64_t>(size_bytes(tensor.dtype)), kDeviation, tensor.dtype, bytes);
      }
      done_ += bytes.size();
      blocks_.push({file, tensor.offset + at, std::move(*buffer)}, stop);
      if (options_.progress) options_.progress(done_, total_);
    }
  }

  const std::vector<DataFileLayout>& layout_;
  const SynthOptions& options_;
  const std::stop_token never_;
  std::vector<std::shared_ptr<files::OutputFile>> files_;
  WriteBehind write_behind_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
  Channel<Buffer> free_{kBuffers};
  Channel<Block> blocks_{kBuffers};
};

std::uint64_t size_of(const std::vector<DataFileLayout>& layout) {
  std::uint64_t out = 0;
  for (const DataFileLayout& file : layout) out += file.size_bytes;
  return out;
}

}  // namespace

std::span<const std::string_view> synth_shapes() noexcept { return kNames; }

std::uint64_t synth(const fs::path& path, const SynthOptions& options) try {
  const Shape& shape = shape_or_fail(options.like);
  if (!is_weight_dtype(options.dtype)) {
    throw Error(ErrorCode::kInvalidArgument, std::string(name(options.dtype)) + " is not float32, float16 or bfloat16");
  }
  const nlohmann::ordered_json config = config_of(shape, options.dtype);
  const std::vector<DataFileLayout> layout = lay_out_shards(tensors_of(config, options.dtype), options.shard_bytes);
  Destination destination(path, {.overwrite = options.overwrite});
  destination.check_space(size_of(layout));
  const std::uint64_t written = Synthesizer(destination, layout, options).run();
  destination.write_file(files::kConfigFile, config.dump(2) + "\n");
  if (layout.size() > 1) destination.write_file(files::kIndexFile, index_text(layout));
  destination.commit();
  return written;
} catch (const fs::filesystem_error& error) {
  throw Error(ErrorCode::kIo, files::printable(error.what(), 1024));
}

}  // namespace halfbyte::convert
