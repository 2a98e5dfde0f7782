// What llama.cpp calls a model's tensors.
#include <array>

#include "loader/files/formats/gguf/names.h"

namespace halfbyte::files {
namespace {

using models::Naming;

// The table of tensors says which are the model's, and what each is for. Of two rows of one name the first that the
// family has: up and gate may be fused.
constexpr auto kModules = std::to_array<GgufModule>({
    {.gguf = "token_embd", .name = &Naming::embedding},
    {.gguf = "output_norm", .name = &Naming::final_norm},
    {.gguf = "output", .name = &Naming::head},
    {.gguf = "attn_norm", .name = &Naming::input_norm},
    {.gguf = "post_attention_norm", .name = &Naming::attention_output_norm},
    {.gguf = "ffn_norm", .name = &Naming::mlp_norm},
    {.gguf = "post_ffw_norm", .name = &Naming::mlp_output_norm},
    {.gguf = "attn_q", .name = &Naming::query, .is_turned = true},
    {.gguf = "attn_k", .name = &Naming::key, .is_turned = true},
    {.gguf = "attn_v", .name = &Naming::value},
    {.gguf = "attn_qkv", .name = &Naming::fused_qkv},
    {.gguf = "attn_output", .name = &Naming::attention_output},
    {.gguf = "attn_q_norm", .name = &Naming::query_norm},
    {.gguf = "attn_k_norm", .name = &Naming::key_norm},
    {.gguf = "attn_sinks", .name = &Naming::sinks},
    {.gguf = "ffn_up", .name = &Naming::fused_gate_up},
    {.gguf = "ffn_up", .name = &Naming::up},
    {.gguf = "ffn_gate", .name = &Naming::gate},
    {.gguf = "ffn_down", .name = &Naming::down},
    {.gguf = "ffn_gate_inp", .name = &Naming::router},
    {.gguf = "ffn_gate_exps", .name = &Naming::expert_gate},
    {.gguf = "ffn_up_exps", .name = &Naming::expert_up},
    {.gguf = "ffn_down_exps", .name = &Naming::expert_down},
    {.gguf = "ffn_gate_exps", .name = &Naming::stacked_gate_up, .layout = gate_rows},
    {.gguf = "ffn_up_exps", .name = &Naming::stacked_gate_up, .layout = up_rows},
    {.gguf = "ffn_gate_up_exps", .name = &Naming::stacked_gate_up, .is_read_only = true},
    {.gguf = "ffn_down_exps", .name = &Naming::stacked_down},
    {.gguf = "ffn_gate_exps", .name = &Naming::stacked_gate_up_bias, .suffix = ".bias", .layout = gate_values},
    {.gguf = "ffn_up_exps", .name = &Naming::stacked_gate_up_bias, .suffix = ".bias", .layout = up_values},
    {.gguf = "ffn_down_exps", .name = &Naming::stacked_down_bias, .suffix = ".bias"},
    {.gguf = "exp_probs_b", .name = &Naming::correction, .suffix = ".bias"},
    {.gguf = "ffn_gate_shexp", .name = &Naming::shared_gate},
    {.gguf = "ffn_up_shexp", .name = &Naming::shared_up},
    {.gguf = "ffn_down_shexp", .name = &Naming::shared_down},
    {.gguf = "ffn_gate_inp_shexp", .name = &Naming::shared_router},
    {.gguf = "attn_q", .name = &Naming::latent_query},
    {.gguf = "attn_q_a", .name = &Naming::latent_query_down},
    {.gguf = "attn_q_a_norm", .name = &Naming::latent_query_norm},
    {.gguf = "attn_q_b", .name = &Naming::latent_query_up},
    {.gguf = "attn_kv_a_mqa", .name = &Naming::latent_down},
    {.gguf = "attn_kv_a_norm", .name = &Naming::latent_norm},
    {.gguf = "attn_k_b", .name = &Naming::latent_up, .layout = latent_keys},
    {.gguf = "attn_v_b", .name = &Naming::latent_up, .layout = latent_values},
    {.gguf = "attn_kv_b", .name = &Naming::latent_up, .is_read_only = true},
    {.gguf = "attn_output", .name = &Naming::latent_output},
    {.gguf = "shortconv.in_proj", .name = &Naming::convolution_input},
    {.gguf = "shortconv.conv", .name = &Naming::convolution_kernel},
    {.gguf = "shortconv.out_proj", .name = &Naming::convolution_output},
    {.gguf = "attn_qkv", .name = &Naming::delta_fused, .layout = delta_mixed_rows},
    {.gguf = "attn_gate", .name = &Naming::delta_fused, .layout = delta_gate_rows},
    {.gguf = "ssm_in", .name = &Naming::delta_fused, .is_read_only = true},
    {.gguf = "ssm_ba", .name = &Naming::delta_fused_rates},
    {.gguf = "attn_qkv", .name = &Naming::delta_input, .layout = tiled_mixed_rows},
    {.gguf = "attn_gate", .name = &Naming::delta_gate, .layout = tiled_value_rows},
    {.gguf = "ssm_beta", .name = &Naming::delta_rate, .layout = tiled_heads},
    {.gguf = "ssm_alpha", .name = &Naming::delta_decay, .layout = tiled_heads},
    {.gguf = "ssm_conv1d", .name = &Naming::delta_kernel},
    {.gguf = "ssm_dt", .name = &Naming::delta_time_bias, .suffix = ".bias"},
    {.gguf = "ssm_a", .name = &Naming::delta_log_decay, .suffix = "", .values = GgufValues::kMinusExp},
    {.gguf = "ssm_norm", .name = &Naming::delta_norm},
    {.gguf = "ssm_out", .name = &Naming::delta_output},
});

}  // namespace

std::span<const GgufModule> usual_gguf_modules() noexcept { return kModules; }

}  // namespace halfbyte::files
