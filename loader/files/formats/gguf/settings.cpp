#include "loader/files/formats/gguf/settings.h"

#include <algorithm>
#include <array>

namespace halfbyte::files {
namespace {

using M = const models::ModelConfig&;

constexpr double kSigmoid = 2;  // of expert_gating_func

double leading_dense(M m) {
  const auto first = std::ranges::find(m.layers, true, &models::LayerConfig::has_experts);
  return static_cast<double>(first - m.layers.begin());
}
double shared_experts(M m) { return static_cast<double>(m.moe.shared_size / m.moe.intermediate_size); }

// Those of YaRN; without it there is nothing to say them of.
double of_yarn(M m, double value) { return m.ropes.front().type == models::RopeType::kYarn ? value : 0.0; }

constexpr auto kGranite = std::to_array<GgufSetting>({
    {.gguf = "logit_scale",
     .config = "logits_scaling",
     .value = [](M m) { return 1 / m.logit_scale; },
     .is_required = true},
    {.gguf = "attention.scale", .config = "attention_multiplier", .value = [](M m) { return m.query_scale; }},
    {.gguf = "embedding_scale", .config = "embedding_multiplier", .value = [](M m) { return m.embedding_scale; }},
    {.gguf = "residual_scale", .config = "residual_multiplier", .value = [](M m) { return m.residual_scale; }},
});

constexpr auto kCohere2 = std::to_array<GgufSetting>({
    {.gguf = "logit_scale", .config = "logit_scale", .value = [](M m) { return m.logit_scale; }, .is_required = true},
});

constexpr auto kGemma3 = std::to_array<GgufSetting>({
    {.gguf = "rope.freq_base_swa",
     .config = "rope_local_base_freq",
     .value = [](M m) { return m.ropes.back().theta; },
     .absent = 10000.0},
});

constexpr auto kMinistral3 = std::to_array<GgufSetting>({
    {.gguf = "attention.temperature_scale",
     .config = "llama_4_scaling_beta",
     .is_of_scaling = true,
     .value = [](M m) { return of_yarn(m, m.query_growth.beta); }},
    {.gguf = "rope.scaling.yarn_beta_fast",
     .config = "beta_fast",
     .is_of_scaling = true,
     .value = [](M m) { return of_yarn(m, m.ropes.front().beta_fast); }},
    {.gguf = "rope.scaling.yarn_beta_slow",
     .config = "beta_slow",
     .is_of_scaling = true,
     .value = [](M m) { return of_yarn(m, m.ropes.front().beta_slow); }},
});

constexpr auto kMinimaxM2 = std::to_array<GgufSetting>({
    {.gguf = "expert_gating_func", .type = GgufValueType::kUint32, .value = [](M) { return kSigmoid; }},
});

constexpr auto kGlm4Moe = std::to_array<GgufSetting>({
    {.gguf = "leading_dense_block_count",
     .config = "first_k_dense_replace",
     .type = GgufValueType::kUint32,
     .value = leading_dense,
     .absent = 0.0},
    {.gguf = "expert_shared_count",
     .config = "n_shared_experts",
     .type = GgufValueType::kUint32,
     .value = shared_experts,
     .is_required = true},
    {.gguf = "expert_group_count",
     .config = "n_group",
     .type = GgufValueType::kUint32,
     .value = [](M m) { return static_cast<double>(m.moe.groups); }},
    {.gguf = "expert_group_used_count",
     .config = "topk_group",
     .type = GgufValueType::kUint32,
     .value = [](M m) { return static_cast<double>(m.moe.chosen_groups); }},
    {.gguf = "expert_gating_func", .type = GgufValueType::kUint32, .value = [](M) { return kSigmoid; }},
    {.gguf = "expert_weights_scale",
     .config = "routed_scaling_factor",
     .value = [](M m) { return m.moe.scale; },
     .absent = 1.0},
    {.gguf = "expert_weights_norm",
     .config = "norm_topk_prob",
     .type = GgufValueType::kBool,
     .value = [](M m) { return m.moe.is_normalised ? 1.0 : 0.0; },
     .absent = 0.0},
});

struct Row {
  std::string_view model_type;
  std::span<const GgufSetting> settings;
};

constexpr auto kRows = std::to_array<Row>({
    {"granite", kGranite},
    {"cohere2", kCohere2},
    {"gemma3_text", kGemma3},
    {"ministral3", kMinistral3},
    {"minimax_m2", kMinimaxM2},
    {"glm4_moe", kGlm4Moe},
});

}  // namespace

std::span<const GgufSetting> gguf_settings(std::string_view model_type) noexcept {
  const auto row = std::ranges::find(kRows, model_type, &Row::model_type);
  return row == kRows.end() ? std::span<const GgufSetting>() : row->settings;
}

}  // namespace halfbyte::files
