#include "loader/files/formats/pytorch/meta_params.h"

#include <array>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/json_text.h"
#include "loader/files/printable.h"
#include "models/json/field.h"

namespace halfbyte::files {
namespace {

constexpr std::int64_t kMaxLength = 1 << 22, kMaxLayers = 1 << 10;
constexpr double kLlama3Theta = 500000.0, kCodeLlamaTheta = 1000000.0;
// Llama 3.2's small models turn slower than 3.1's; its params.json need not say so.
constexpr std::int64_t kMaxDimOfSmall = 3072;
constexpr double kFactorOfSmall = 32.0, kFactor = 8.0;

struct OtherModel {
  const char* field;
  const char* what;
};

constexpr auto kOtherModels = std::to_array<OtherModel>({
    {"moe_args", "a mixture of experts"},
    {"moe", "a mixture of experts"},
    {"vision_args", "a model of images"},
    {"vision_chunk_size", "a model of images"},
    {"quantization_args", "quantised weights"},
    {"lora_args", "an adapter"},
});

void refuse_others(const JsonField& root) {
  for (const OtherModel& row : kOtherModels) {
    const auto field = root.find(row.field);
    if (!field || field->json() == nlohmann::json(false)) continue;
    throw Error(ErrorCode::kUnsupported, field->path() + ": this is " + row.what +
                                             " in Meta's layout, which is not read; get the model from Hugging Face");
  }
}

double number_or(const JsonField& root, const char* name, double otherwise) {
  const auto field = root.find(name);
  return field ? field->number() : otherwise;
}

// What Meta trained each generation with; params.json does not say it.
std::int64_t context_of(const MetaParams& params) {
  if (params.has_scaled_rope) return 131072;
  if (params.rope_theta == kLlama3Theta) return 8192;
  if (params.rope_theta == kCodeLlamaTheta) return 16384;
  return params.is_first_llama ? 2048 : 4096;
}

nlohmann::ordered_json rope_scaling_of(const MetaParams& params) {
  if (!params.has_scaled_rope) return nullptr;
  const double usual = params.dim <= kMaxDimOfSmall ? kFactorOfSmall : kFactor;
  return {{"rope_type", "llama3"},
          {"factor", params.rope_factor > 0 ? params.rope_factor : usual},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}};
}

}  // namespace

MetaParams read_meta_params(const fs::path& path) {
  const std::string where = printable_path(path);
  const auto tree = parse_json<nlohmann::json>(read_text(path, kConfigLimits.max_bytes), where, kConfigLimits);
  const JsonField root(tree, where);
  refuse_others(root);
  MetaParams out;
  out.dim = root.at("dim").integer(1, kMaxLength);
  out.layers = root.at("n_layers").integer(1, kMaxLayers);
  out.heads = root.at("n_heads").integer(1, kMaxLength);
  const auto kv_heads = root.find("n_kv_heads");
  out.kv_heads = kv_heads ? kv_heads->integer(1, kMaxLength) : out.heads;
  if (const auto vocab = root.find("vocab_size"))
    out.vocab_size = std::max<std::int64_t>(0, vocab->integer(-1, kMaxLength));
  out.norm_eps = number_or(root, "norm_eps", out.norm_eps);
  out.rope_theta = number_or(root, "rope_theta", out.rope_theta);
  out.rope_factor = number_or(root, "rope_scaling_factor", 0);
  if (const auto scaled = root.find("use_scaled_rope")) out.has_scaled_rope = scaled->boolean();
  out.is_first_llama = out.norm_eps < 1e-5;
  if (out.dim % out.heads != 0 || out.head_dim() % 2 != 0 || out.heads % out.kv_heads != 0)
    throw Error(ErrorCode::kCorrupt, where + ": dim " + std::to_string(out.dim) + ", n_heads " +
                                         std::to_string(out.heads) + " and n_kv_heads " + std::to_string(out.kv_heads) +
                                         " do not divide each other");
  return out;
}

nlohmann::ordered_json config_of(const MetaParams& params, std::int64_t hidden_dim, std::int64_t vocab_size,
                                 bool has_head, std::string_view dtype) {
  const bool is_llama3 = params.rope_theta == kLlama3Theta;
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", params.dim},
          {"intermediate_size", hidden_dim},
          {"num_hidden_layers", params.layers},
          {"num_attention_heads", params.heads},
          {"num_key_value_heads", params.kv_heads},
          {"vocab_size", vocab_size},
          {"max_position_embeddings", context_of(params)},
          {"rms_norm_eps", params.norm_eps},
          {"rope_theta", params.rope_theta},
          {"rope_scaling", rope_scaling_of(params)},
          {"hidden_act", "silu"},
          {"bos_token_id", is_llama3 ? 128000 : 1},
          {"eos_token_id", is_llama3 ? 128001 : 2},
          {"tie_word_embeddings", !has_head},
          {"torch_dtype", dtype}};
}

}  // namespace halfbyte::files
