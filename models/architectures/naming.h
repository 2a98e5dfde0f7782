// What a family calls its modules. A row of names instead of a model of its own; tensor_table.h says what each is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/architectures/role.h"

namespace halfbyte::models {

// Paths of modules; tensors are "PATH.weight" and "PATH.bias". An empty name: this family has no such module.
// The defaults are those of Llama in transformers.
struct Naming {
  std::string_view text = "";  // of a model that sees or hears too: what its text part stands below
  std::string_view embedding = "model.embed_tokens";
  std::string_view layers = "model.layers";
  std::string_view final_norm = "model.norm";
  std::string_view head = "lm_head";
  std::string_view rotary = "model.rotary_emb";  // of the buffer "inv_freq"

  // What each layer is given for a token beside the stream: an embedding of all layers, a projection of the stream's,
  // and the norm of that.
  std::string_view layer_embedding = "";
  std::string_view layer_projection = "";
  std::string_view layer_projection_norm = "";

  // Below "LAYERS.N.".
  std::string_view input_norm = "input_layernorm";
  std::string_view attention = "self_attn";
  std::string_view attention_output_norm = "";
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view mlp = "mlp";
  std::string_view mlp_output_norm = "";
  std::string_view layer_input_gate = "";
  std::string_view layer_input_output = "";
  std::string_view layer_input_norm = "";
  std::string_view layer_scale = "";  // a tensor, without ".weight"

  // Below the attention's path.
  std::string_view query = "q_proj";
  std::string_view key = "k_proj";
  std::string_view value = "v_proj";
  std::string_view fused_qkv = "";
  std::string_view attention_output = "o_proj";
  std::string_view query_norm = "q_norm";
  std::string_view key_norm = "k_norm";
  std::string_view sinks = "";                   // a tensor, without ".weight"
  std::string_view layer_rotary = "rotary_emb";  // of a buffer that old versions of transformers wrote; it is derived

  // Of attention by a latent vector a token; below the attention's path too.
  std::string_view latent_query = "";
  std::string_view latent_query_down = "";
  std::string_view latent_query_norm = "";
  std::string_view latent_query_up = "";
  std::string_view latent_down = "";
  std::string_view latent_norm = "";
  std::string_view latent_up = "";
  std::string_view latent_output = "";

  // Of layers that mix tokens by a short convolution; below its path.
  std::string_view convolution = "";
  std::string_view convolution_input = "in_proj";
  std::string_view convolution_kernel = "conv";
  std::string_view convolution_output = "out_proj";

  // Of layers that mix tokens by the gated delta rule; below its path.
  std::string_view delta = "";
  std::string_view delta_input = "in_proj_qkv";  // to queries, keys and values
  std::string_view delta_gate = "in_proj_z";
  std::string_view delta_fused = "";  // of both, key head by key head
  std::string_view delta_rate = "in_proj_b";
  std::string_view delta_decay = "in_proj_a";
  std::string_view delta_fused_rates = "";  // of both, key head by key head
  std::string_view delta_kernel = "conv1d";
  std::string_view delta_time_bias = "dt_bias";  // tensors, without ".weight"
  std::string_view delta_log_decay = "A_log";
  std::string_view delta_norm = "norm";
  std::string_view delta_output = "out_proj";

  // Below the MLP's path, and an expert's.
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view fused_gate_up = "";
  std::string_view down = "down_proj";

  // Experts beside an MLP, all below "LAYERS.N.": norms of what the one gives, and of what the others take and give.
  bool are_experts_beside = false;
  std::string_view mlp_result_norm = "";
  std::string_view experts_norm = "";
  std::string_view experts_result_norm = "";

  // Below the path of the MLP that chooses among experts.
  std::string_view moe = "";  // instead of `mlp`
  std::string_view router = "gate";
  std::string_view router_scale = "";                            // of its input; tensors, without ".weight"
  std::string_view expert_scale = "";                            // of shares
  std::string_view correction = "gate.e_score_correction_bias";  // a tensor, without ".weight"
  std::string_view experts = "experts";
  std::string_view expert_gate = "gate_proj";
  std::string_view expert_up = "up_proj";
  std::string_view expert_down = "down_proj";
  // One tensor of all experts, without ".weight": (experts, 2 * intermediate_size, hidden_size), gate's rows first, and
  // (experts, hidden_size, intermediate_size).
  std::string_view stacked_gate_up = "";
  std::string_view stacked_down = "";
  std::string_view stacked_gate_up_bias = "";  // (experts, 2 * intermediate_size)
  std::string_view stacked_down_bias = "";     // (experts, hidden_size)
  // Where they are not quantised: (experts, in_features, out_features).
  bool are_stacks_transposed = false;
  // Of the MLP beside the experts.
  std::string_view shared = "shared_experts";
  std::string_view shared_gate = "gate_proj";
  std::string_view shared_up = "up_proj";
  std::string_view shared_down = "down_proj";
  std::string_view shared_router = "";  // how much of its result counts; below the path of the MLP that chooses

  // Of layers that predict further tokens ahead, which are kept and not run, where they do not follow the others.
  std::string_view ahead = "";
};

// One digit-run wildcard: "{}" in a pattern matches one or more digits; everything else matches itself.
bool matches(std::string_view pattern, std::string_view name) noexcept;

struct TensorPattern {
  std::string pattern;
  Role role;
};

// Every name that a checkpoint of this naming can have.
std::vector<TensorPattern> patterns_of(const Naming& naming);

}  // namespace halfbyte::models
