#include "loader/files/formats/gguf/settings.h"

#include <algorithm>
#include <array>

namespace halfbyte::files {
namespace {

using M = const models::ModelConfig&;

constexpr double kSoftmax = 1, kSigmoid = 2;  // of expert_gating_func

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

constexpr GgufSetting kLeadingDense = {.gguf = "leading_dense_block_count",
                                       .config = "first_k_dense_replace",
                                       .type = GgufValueType::kUint32,
                                       .value = leading_dense,
                                       .absent = 0.0};
constexpr GgufSetting kSharedCount = {.gguf = "expert_shared_count",
                                      .config = "n_shared_experts",
                                      .type = GgufValueType::kUint32,
                                      .value = shared_experts,
                                      .is_required = true};
constexpr GgufSetting kGroups = {
    .gguf = "expert_group_count", .config = "n_group", .type = GgufValueType::kUint32, .value = [](M m) {
      return static_cast<double>(m.moe.groups);
    }};
constexpr GgufSetting kChosenGroups = {
    .gguf = "expert_group_used_count", .config = "topk_group", .type = GgufValueType::kUint32, .value = [](M m) {
      return static_cast<double>(m.moe.chosen_groups);
    }};
constexpr GgufSetting kBySigmoid = {
    .gguf = "expert_gating_func", .type = GgufValueType::kUint32, .value = [](M) { return kSigmoid; }};
constexpr GgufSetting kShareScale = {.gguf = "expert_weights_scale",
                                     .config = "routed_scaling_factor",
                                     .value = [](M m) { return m.moe.scale; },
                                     .absent = 1.0};
constexpr GgufSetting kSharesNormalised = {.gguf = "expert_weights_norm",
                                           .config = "norm_topk_prob",
                                           .type = GgufValueType::kBool,
                                           .value = [](M m) { return m.moe.is_normalised ? 1.0 : 0.0; },
                                           .absent = 0.0};

constexpr auto kGlm4Moe = std::to_array<GgufSetting>(
    {kLeadingDense, kSharedCount, kGroups, kChosenGroups, kBySigmoid, kShareScale, kSharesNormalised});

// Without the key llama.cpp chooses among all.
constexpr GgufSetting or_one(GgufSetting setting) {
  setting.absent = 1.0;
  return setting;
}

constexpr auto kDeepseekV3 = std::to_array<GgufSetting>(
    {kLeadingDense, kSharedCount, or_one(kGroups), or_one(kChosenGroups), kBySigmoid, kShareScale, kSharesNormalised});

constexpr auto kDeepseekV2 = std::to_array<GgufSetting>({
    kLeadingDense,
    kSharedCount,
    or_one(kGroups),
    or_one(kChosenGroups),
    {.gguf = "expert_gating_func", .type = GgufValueType::kUint32, .value = [](M) { return kSoftmax; }},
    kShareScale,
    {.gguf = "expert_weights_norm", .type = GgufValueType::kBool, .value = [](M) { return 0.0; }},
});

constexpr GgufSetting written(std::string_view key, double (*value)(M)) {
  return {.gguf = key, .type = GgufValueType::kUint32, .value = value, .is_only_written = true};
}

constexpr auto kLlama4 = std::to_array<GgufSetting>({
    written("interleave_moe_layer_step", [](M m) { return leading_dense(m) + 1; }),
});

constexpr auto kLfm2 = std::to_array<GgufSetting>({
    written("shortconv.l_cache", [](M m) { return static_cast<double>(m.convolution_length); }),
});

constexpr GgufSetting kSharedSize =
    written("expert_shared_feed_forward_length", [](M m) { return static_cast<double>(m.moe.shared_size); });
constexpr GgufSetting kDeltaLength =
    written("ssm.conv_kernel", [](M m) { return static_cast<double>(m.delta.convolution_length); });
constexpr GgufSetting kDeltaState = written("ssm.state_size", [](M m) { return static_cast<double>(m.delta.key_dim); });
constexpr GgufSetting kDeltaKeys =
    written("ssm.group_count", [](M m) { return static_cast<double>(m.delta.key_heads); });
constexpr GgufSetting kDeltaHeads =
    written("ssm.time_step_rank", [](M m) { return static_cast<double>(m.delta.value_heads); });
constexpr GgufSetting kDeltaInner =
    written("ssm.inner_size", [](M m) { return static_cast<double>(m.delta.value_heads * m.delta.value_dim); });

constexpr auto kDelta = std::to_array<GgufSetting>({kDeltaLength, kDeltaState, kDeltaKeys, kDeltaHeads, kDeltaInner});
constexpr auto kDeltaMoe =
    std::to_array<GgufSetting>({kDeltaLength, kDeltaState, kDeltaKeys, kDeltaHeads, kDeltaInner, kSharedSize});

struct Row {
  std::string_view model_type;
  std::span<const GgufSetting> settings;
};

constexpr auto kRows = std::to_array<Row>({
    {"granite", kGranite},
    {"granitemoe", kGranite},
    {"deepseek_v2", kDeepseekV2},
    {"deepseek_v3", kDeepseekV3},
    {"llama4_text", kLlama4},
    {"lfm2", kLfm2},
    {"qwen3_next", kDeltaMoe},
    {"qwen3_5_text", kDelta},
    {"qwen3_5_moe_text", kDeltaMoe},
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
