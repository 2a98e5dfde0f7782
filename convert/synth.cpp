#include "convert/synth.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/output/destination.h"
#include "convert/output/image.h"
#include "convert/synth_values.h"
#include "loader/files/directory.h"
#include "loader/files/printable.h"
#include "models/architectures/architecture.h"

namespace halfbyte::convert {
namespace {

constexpr float kDeviation = 0.02F;  // initializer_range of Llama
constexpr std::uint64_t kBlockBytes = std::uint64_t{8} << 20;

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
    {.name = "tiny",
     .hidden_size = 128,
     .num_hidden_layers = 2,
     .num_attention_heads = 4,
     .num_key_value_heads = 2,
     .intermediate_size = 352,
     .vocab_size = 512,
     .max_position_embeddings = 256},
    {.name = "llama-1.1b",
     .hidden_size = 2048,
     .num_hidden_layers = 22,
     .num_attention_heads = 32,
     .num_key_value_heads = 4,
     .intermediate_size = 5632,
     .vocab_size = 32000,
     .max_position_embeddings = 2048},
    {.name = "llama-7b",
     .hidden_size = 4096,
     .num_hidden_layers = 32,
     .num_attention_heads = 32,
     .num_key_value_heads = 32,
     .intermediate_size = 11008,
     .vocab_size = 32000,
     .max_position_embeddings = 4096},
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

// The values of one tensor: norms are ones.
class SynthTensor final : public ImageSource {
 public:
  SynthTensor(const OutputTensor& tensor, std::uint64_t seed)
      : dtype_(tensor.dtype),
        size_bytes_(tensor.size_bytes),
        is_norm_(tensor.shape.size() == 1),
        key_(value_key(seed, tensor.name)) {}

  std::size_t pieces() const override { return (size_bytes_ + kBlockBytes - 1) / kBlockBytes; }

  void write(std::size_t piece, const WritePart& write) const override {
    const std::uint64_t at = piece * kBlockBytes;
    std::vector<std::byte> bytes(std::min(kBlockBytes, size_bytes_ - at));
    const std::uint64_t first = at / static_cast<std::uint64_t>(size_bytes(dtype_));
    is_norm_ ? fill_ones(dtype_, bytes) : fill_normal(key_, first, kDeviation, dtype_, bytes);
    write(0, at, bytes);
  }

 private:
  Dtype dtype_;
  std::uint64_t size_bytes_;
  bool is_norm_;
  std::uint64_t key_;
};

Image image_of(const nlohmann::ordered_json& config, const SynthOptions& options) {
  const nlohmann::json plain(config);
  const models::Architecture& llama = *models::find_architecture(plain);
  std::vector<ImageRecord> records;
  for (auto& tensor : llama.expected(llama.parse(plain))) {
    ImageRecord& record = records.emplace_back();
    record.parts = {output_tensor(tensor.name, options.dtype, tensor.shape)};
    record.source = std::make_shared<SynthTensor>(record.parts[0], options.seed);
  }
  return lay_out_image(std::move(records), std::max<std::uint64_t>(1, options.shard_bytes));
}

}  // namespace

std::span<const std::string_view> synth_shapes() noexcept { return kNames; }

SynthSummary synth(const fs::path& path, const SynthOptions& options) {
  const Shape& shape = shape_or_fail(options.like);
  if (!is_weight_dtype(options.dtype)) {
    throw Error(ErrorCode::kInvalidArgument, std::string(name(options.dtype)) + " is not float32, float16 or bfloat16");
  }
  const nlohmann::ordered_json config = config_of(shape, options.dtype);
  const Image image = image_of(config, options);
  Destination destination(path, {.overwrite = options.overwrite});
  destination.check_space(image.file_bytes());
  destination.fill([&] {
    write_image(image, destination.partial_path(), {.progress = options.progress, .stop = options.stop});
    destination.write_file(files::kConfigFile, config.dump(2) + "\n");
    if (image.files.size() > 1) destination.write_file(files::kIndexFile, index_text(image.files));
  });
  return {image.size_bytes, destination.warnings()};
}

}  // namespace halfbyte::convert
