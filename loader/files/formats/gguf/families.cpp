// llama.cpp's architectures, and which family of halfbyte's each is.
#include <algorithm>
#include <array>

#include "loader/files/formats/gguf/names.h"

namespace halfbyte::files {
namespace {

using models::Naming;

constexpr std::int64_t kSigmoid = 2;  // of expert_gating_func

bool has_experts(const GgufFile& file) { return file.integer("llama.expert_count").value_or(0) > 0; }
bool has_fused_qkv(const GgufFile& file) { return file.find_tensor("blk.0.attn_qkv.weight") != nullptr; }
bool slides(const GgufFile& file) { return file.integer("olmo2.attention.sliding_window").value_or(0) > 0; }
bool has_corrections(const GgufFile& file) {
  return std::ranges::any_of(file.tensors(), [](const GgufTensor& tensor) {
    return tensor.name.starts_with("blk.") && tensor.name.ends_with(".exp_probs_b.bias");
  });
}
// Some files do not say it.
bool chooses_by_sigmoid(const GgufFile& file) {
  const auto said = file.integer("deepseek2.expert_gating_func");
  return said ? *said == kSigmoid : has_corrections(file);
}

// The norm before the MLP by the name that elsewhere is that of attention's result.
constexpr auto kNormAfterAttention =
    std::to_array<GgufModule>({{.gguf = "post_attention_norm", .name = &Naming::mlp_norm}});

constexpr auto kLfm2 = std::to_array<GgufModule>({{.gguf = "token_embd_norm", .name = &Naming::final_norm}});

// Value heads in turns of the key heads.
constexpr auto kTiledDelta = std::to_array<GgufModule>({
    {.gguf = "post_attention_norm", .name = &Naming::mlp_norm},
    {.gguf = "ssm_conv1d", .name = &Naming::delta_kernel, .layout = tiled_mixed_rows},
    {.gguf = "ssm_dt", .name = &Naming::delta_time_bias, .suffix = ".bias", .layout = tiled_heads},
    {.gguf = "ssm_a",
     .name = &Naming::delta_log_decay,
     .suffix = "",
     .layout = tiled_heads,
     .values = GgufValues::kMinusExp},
    {.gguf = "ssm_out", .name = &Naming::delta_output, .layout = tiled_value_columns},
});

constexpr auto kGemma4 = std::to_array<GgufModule>({
    {.gguf = "ffn_gate_up_exps", .name = &Naming::stacked_gate_up},
    {.gguf = "ffn_gate_exps", .name = &Naming::stacked_gate_up, .layout = gate_rows, .is_read_only = true},
    {.gguf = "ffn_up_exps", .name = &Naming::stacked_gate_up, .layout = up_rows, .is_read_only = true},
    {.gguf = "ffn_gate_inp", .name = &Naming::router_scale, .suffix = ".scale"},
    {.gguf = "ffn_down_exps", .name = &Naming::expert_scale, .suffix = ".scale"},
    {.gguf = "post_ffw_norm_1", .name = &Naming::mlp_result_norm},
    {.gguf = "pre_ffw_norm_2", .name = &Naming::experts_norm},
    {.gguf = "post_ffw_norm_2", .name = &Naming::experts_result_norm},
    {.gguf = "layer_output_scale", .name = &Naming::layer_scale},
    {.gguf = "per_layer_token_embd", .name = &Naming::layer_embedding},
    {.gguf = "per_layer_model_proj", .name = &Naming::layer_projection},
    {.gguf = "per_layer_proj_norm", .name = &Naming::layer_projection_norm},
    {.gguf = "inp_gate", .name = &Naming::layer_input_gate},
    {.gguf = "proj", .name = &Naming::layer_input_output},
    {.gguf = "post_norm", .name = &Naming::layer_input_norm},
});

// The first that applies.
constexpr auto kFamilies = std::to_array<GgufFamily>({
    {.architecture = "llama", .model_type = "mixtral", .applies = has_experts, .has_metas_rotation = true},
    {.architecture = "llama", .model_type = "llama", .has_metas_rotation = true},
    {.architecture = "llama4", .model_type = "llama4_text", .window = GgufWindow::kChunks, .full_every = 4},
    {.architecture = "qwen2", .model_type = "qwen2"},
    {.architecture = "qwen3", .model_type = "qwen3"},
    {.architecture = "qwen3moe", .model_type = "qwen3_moe"},
    {.architecture = "qwen3next",
     .model_type = "qwen3_next",
     .adds_one_to_norms = true,
     .modules = kNormAfterAttention},
    {.architecture = "qwen35", .model_type = "qwen3_5_text", .adds_one_to_norms = true, .modules = kTiledDelta},
    {.architecture = "qwen35moe", .model_type = "qwen3_5_moe_text", .adds_one_to_norms = true, .modules = kTiledDelta},
    {.architecture = "phi3", .model_type = "phi3", .window = GgufWindow::kRequired},
    {.architecture = "gemma", .model_type = "gemma", .adds_one_to_norms = true, .has_gelu = true},
    {.architecture = "gemma2",
     .model_type = "gemma2",
     .adds_one_to_norms = true,
     .has_gelu = true,
     .window = GgufWindow::kRead,
     .wide_query_layers = 46},
    {.architecture = "gemma3",
     .model_type = "gemma3_text",
     .adds_one_to_norms = true,
     .has_gelu = true,
     .window = GgufWindow::kSomeLayers,
     .full_every = 6,
     .wide_query_layers = 62},
    {.architecture = "gemma4",
     .model_type = "gemma4_text",
     .has_gelu = true,
     .window = GgufWindow::kSomeLayers,
     .full_every = 6,
     .modules = kGemma4},
    {.architecture = "chatglm", .model_type = "chatglm", .applies = has_fused_qkv},
    {.architecture = "chatglm", .model_type = "glm"},
    {.architecture = "glm4", .model_type = "glm4"},
    {.architecture = "glm4moe", .model_type = "glm4_moe", .modules = kNormAfterAttention},
    {.architecture = "deepseek2", .model_type = "deepseek_v3", .applies = chooses_by_sigmoid},
    {.architecture = "deepseek2", .model_type = "deepseek_v2"},
    {.architecture = "gpt-oss",
     .model_type = "gpt_oss",
     .window = GgufWindow::kSomeLayers,
     .full_every = 2,
     .modules = kNormAfterAttention},
    {.architecture = "olmo2",
     .model_type = "olmo3",
     .applies = slides,
     .window = GgufWindow::kSomeLayers,
     .full_every = 4},
    {.architecture = "olmo2", .model_type = "olmo2"},
    {.architecture = "exaone4", .model_type = "exaone4", .window = GgufWindow::kSomeLayers, .full_every = 4},
    {.architecture = "cohere2",
     .model_type = "cohere2",
     .window = GgufWindow::kSomeLayers,
     .full_every = 4,
     .norm_eps = "attention.layer_norm_epsilon"},
    {.architecture = "granite", .model_type = "granite", .has_metas_rotation = true},
    {.architecture = "granitemoe", .model_type = "granitemoe", .has_metas_rotation = true},
    {.architecture = "lfm2", .model_type = "lfm2", .modules = kLfm2},
    {.architecture = "smollm3", .model_type = "smollm3", .has_metas_rotation = true},
    {.architecture = "mistral3", .model_type = "ministral3", .has_metas_rotation = true},
    {.architecture = "seed_oss", .model_type = "seed_oss", .modules = kNormAfterAttention},
    {.architecture = "ernie4_5", .model_type = "ernie4_5"},
    {.architecture = "hunyuan-dense", .model_type = "hunyuan_v1_dense"},
    {.architecture = "minimax-m2", .model_type = "minimax_m2"},
    {.architecture = "phimoe", .model_type = "phimoe", .window = GgufWindow::kRequired},
});

}  // namespace

const GgufFamily* find_gguf_family(const GgufFile& file) {
  const std::string architecture = file.text("general.architecture").value_or("");
  const auto row = std::ranges::find_if(kFamilies, [&](const GgufFamily& family) {
    return family.architecture == architecture && (!family.applies || family.applies(file));
  });
  return row == kFamilies.end() ? nullptr : &*row;
}

const models::Family& family_of(const GgufFamily& family) {
  return **std::ranges::find(models::families(), family.model_type, &models::Family::model_type);
}

const GgufFamily* gguf_family_of(std::string_view model_type) noexcept {
  const std::string_view wanted = model_type == "mistral" ? "llama" : model_type;  // llama.cpp knows no difference
  const auto row = std::ranges::find(kFamilies, wanted, &GgufFamily::model_type);
  return row == kFamilies.end() ? nullptr : &*row;
}

}  // namespace halfbyte::files
