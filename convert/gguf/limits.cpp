// Source: ggml-org/llama.cpp, src/models/, a file of each architecture, and src/llama-context.cpp for YaRN.
#include "convert/gguf/limits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/settings.h"

namespace halfbyte::convert {
namespace {

using M = const models::ModelConfig&;
using F = const files::GgufFamily&;
using L = const models::LayerConfig&;
using models::RopeType;

struct Limit {
  bool (*holds)(M, F);
  const char* otherwise;  // what the model has where it does not hold
};

bool is_rope(M m, std::initializer_list<RopeType> types) {
  return std::ranges::find(types, m.ropes.front().type) != types.end();
}

bool says_betas(F f) {
  return std::ranges::any_of(files::gguf_settings(f.model_type),
                             [](const files::GgufSetting& row) { return row.gguf == "rope.scaling.yarn_beta_fast"; });
}

// Every `every`th layer is otherwise than the others.
bool is_so_but_every(M m, std::int64_t every, bool (*is_so)(L)) {
  for (std::int64_t layer = 0; layer < m.num_hidden_layers; ++layer) {
    if (is_so(m.layer(layer)) != ((layer + 1) % every != 0)) return false;
  }
  return true;
}

// Layers that slide turn by a rope without scaling, of a base that `has_base` accepts; the others by the first rope.
bool slide_by_plain_rope(M m, bool (*has_base)(double sliding, double full)) {
  return std::ranges::all_of(m.layers, [&](const models::LayerConfig& layer) {
    if (layer.window == 0) return layer.rope == 0;
    const models::RopeConfig& rope = m.ropes.at(layer.rope);
    return rope.type == RopeType::kDefault && has_base(rope.theta, m.ropes.front().theta);
  });
}

bool is_any_base(double, double) { return true; }
bool is_same_base(double sliding, double full) { return sliding == full; }
bool layer_slides(L layer) { return layer.window > 0; }
bool layer_turns(L layer) { return layer.rope != models::kNoRope; }

bool has_activation(M m, F f) {
  if (m.activation == models::Activation::kClamped) return m.gate_clamp == models::GateClamp();
  return m.activation == (f.has_gelu ? models::Activation::kGeluTanh : models::Activation::kSilu);
}
// Of gpt-oss llama.cpp takes whole pairs, whatever the file says; export_gguf() notes it.
bool has_usual_range(M m, F) {
  return !is_rope(m, {RopeType::kYarn}) || m.ropes.front().is_range_truncated || m.model_type == "gpt_oss";
}
bool has_usual_betas(M m, F f) {
  const models::RopeConfig& rope = m.ropes.front();
  return rope.type != RopeType::kYarn || says_betas(f) || (rope.beta_fast == 32.0 && rope.beta_slow == 1.0);
}
bool has_no_factors(M m, F) { return !is_rope(m, {RopeType::kLlama3, RopeType::kLongrope}); }
bool has_no_longrope(M m, F) { return !is_rope(m, {RopeType::kLongrope}); }
bool is_linear_at_most(M m, F) { return is_rope(m, {RopeType::kDefault, RopeType::kLinear}); }
bool turns_whole(M m, F) { return m.ropes.front().rotary_dim == m.head_dim; }
bool fills_hidden(M m, F) { return m.query_size() == m.hidden_size; }
bool is_untied(M m, F) { return !m.tie_word_embeddings; }
bool is_tied(M m, F) { return m.tie_word_embeddings; }
bool has_no_output_bias(M m, F) { return !m.output_bias; }
bool has_no_mlp_bias(M m, F) { return !m.mlp_bias; }
bool has_no_softcap(M m, F) { return m.attention_softcap == 0; }
bool has_softcaps(M m, F) { return m.attention_softcap > 0 && m.logit_softcap > 0; }
bool has_query_scale(M m, F f) {
  const bool is_wide = m.num_hidden_layers == f.wide_query_layers;
  const auto size = static_cast<double>(is_wide ? m.hidden_size / m.num_attention_heads : m.head_dim);
  return std::abs(m.query_scale * std::sqrt(size) - 1) < 1e-6;
}
bool slides_every_second(M m, F) { return is_so_but_every(m, 2, layer_slides); }
bool slides_plainly(M m, F) { return slide_by_plain_rope(m, is_any_base); }
bool slides_by_same_rope(M m, F) { return slide_by_plain_rope(m, is_same_base); }
bool slides_where_64(M m, F) { return std::ranges::any_of(m.layers, layer_slides) == (m.num_hidden_layers == 64); }
bool turns_but_every_fourth(M m, F) { return is_so_but_every(m, 4, layer_turns); }
bool grows_by_yarn(M m, F) { return m.query_growth.beta == 0 || is_rope(m, {RopeType::kYarn}); }
bool has_shared_experts(M m, F) { return m.moe.shared_size > 0; }
bool chooses_groups(M m, F) { return m.moe.groups == 1 || m.moe.chosen_groups < m.moe.groups; }
bool has_biases(M m, F) { return m.qkv_bias && m.output_bias; }
bool has_no_biases(M m, F) { return !m.qkv_bias && !m.output_bias; }
bool has_no_convolution_bias(M m, F) { return !m.convolution_bias; }
// llama.cpp ends itself over a pattern of which no layer slides,
bool slides_somewhere(M m, F f) {
  const bool has_pattern =
      f.window == files::GgufWindow::kChunks || (f.window == files::GgufWindow::kSomeLayers && m.sliding_window > 0);
  return !has_pattern || std::ranges::any_of(m.layers, layer_slides);
}
// over one whose queries grow in none,
bool has_unturned_layer(M m, F) { return !std::ranges::all_of(m.layers, layer_turns); }
// and over a model that has no state of one kind.
bool mixes_both_ways(M m, F) {
  const auto attends = [](L layer) { return layer.mixer == models::MixerKind::kAttention; };
  return std::ranges::any_of(m.layers, attends) && !std::ranges::all_of(m.layers, attends);
}
bool is_default_or_yarn(M m, F) { return is_rope(m, {RopeType::kDefault, RopeType::kYarn}); }
bool has_latent_eps(M m, F) { return m.latent.norm_eps == m.norm_eps; }
bool turns_neighbours(M m, F) { return m.ropes.front().is_interleaved; }
// Of YaRN what grows is scores, not queries and keys.
bool grows_scores(M m, F) {
  const models::RopeConfig& rope = m.ropes.front();
  if (rope.type != RopeType::kYarn) return true;
  const double usual = 1 / std::sqrt(static_cast<double>(m.latent.query_dim()));
  return std::abs(rope.attention_factor - 1) < 1e-9 && rope.factor > 1 && m.query_scale > usual * (1 + 1e-9);
}
// llama.cpp takes such models for those without one.
bool keeps_query_rank(M m, F) {
  const std::int64_t layers = m.num_hidden_layers;
  const bool is_lite = layers == 26 || layers == 27 || (layers == 48 && m.vocab_size == 128256);
  return m.latent.query_rank == 0 || !is_lite;
}
bool adds_best_two(M m, F) { return m.moe.groups == 1 || m.moe.group_best == 2; }
// llama.cpp takes the norms' epsilon for the delta rule's own norms of queries and keys too.
bool has_delta_eps(M m, F) { return m.norm_eps == 1e-6; }
bool has_one_head_size(M m, F) { return m.delta.key_dim == m.delta.value_dim; }
bool has_experts_everywhere(M m, F) { return std::ranges::all_of(m.layers, &models::LayerConfig::has_experts); }
bool is_normalised(M m, F) { return m.moe.is_normalised; }

bool has_llama4_chunks(M m, F) {
  return std::ranges::all_of(m.layers, [](L layer) { return layer.window == (layer.is_chunked ? 8192 : 0); });
}
bool has_llama4_growth(M m, F) {
  const models::QueryGrowth usual{.beta = 0.1, .length = 8192, .shift = 1};
  const auto is_usual = [](L layer) { return layer.has_growth == (layer.rope == models::kNoRope); };
  return m.query_growth == usual && std::ranges::all_of(m.layers, is_usual);
}
bool has_llama4_norms(M m, F) {
  return (m.query_key_norm != models::QueryKeyNorm::kNone) == (m.moe.num_experts != 128);
}
bool has_experts_by_step(M m, F) {
  const auto first = std::ranges::find(m.layers, true, &models::LayerConfig::has_experts);
  const std::int64_t step = first - m.layers.begin() + 1;
  for (std::int64_t layer = 0; layer < m.num_hidden_layers; ++layer) {
    if (m.layer(layer).has_experts != ((layer + 1) % step == 0)) return false;
  }
  return first != m.layers.end();
}

bool has_heads_by_kind(M m, F) {
  const auto sees = std::ranges::find(m.layers, 0, &models::LayerConfig::window);
  return sees != m.layers.end() && std::ranges::all_of(m.layers, [&](L layer) {
           return m.head_dim_of(layer) == (layer.window > 0 ? m.head_dim : m.head_dim_of(*sees));
         });
}
// The last two before those that share are the ones whose keys are shared, of each kind one.
bool shares_of_last_two(M m, F) {
  const auto first = std::ranges::find_if(m.layers, [](L layer) { return layer.keys_of >= 0; }) - m.layers.begin();
  return std::ranges::all_of(
      m.layers, [&](L layer) { return layer.keys_of < 0 || layer.keys_of == first - (layer.window > 0 ? 2 : 1); });
}
bool turns_gemma4(M m, F) {
  const models::RopeConfig &all = m.ropes.front(), &own = m.ropes.back();
  const bool is_own_plain = own.type == RopeType::kDefault && own.rotary_dim == m.head_dim;
  return is_own_plain && all.type == RopeType::kProportional && all.factor == 1.0;
}
bool has_layer_vocab(M m, F) { return m.layer_input_size == 0 || m.layer_input_vocab == m.vocab_size; }
bool shares_keys_where_seen(M m, F) {
  return std::ranges::none_of(m.layers, [](L layer) { return layer.are_values_keys && layer.window > 0; });
}
bool never(M, F) { return false; }

constexpr Limit kNoFactors = {has_no_factors, "rope scaling llama3 or longrope"};
constexpr Limit kTurnsWhole = {turns_whole, "heads of which a part turns"};
constexpr Limit kFillsHidden = {fills_hidden, "heads that are not hidden_size together"};
constexpr Limit kUntied = {is_untied, "a head that is the embedding"};
constexpr Limit kNoOutputBias = {has_no_output_bias, "a bias of attention's output"};
constexpr Limit kNoMlpBias = {has_no_mlp_bias, "biases of the MLP"};
constexpr Limit kQueryScale = {has_query_scale, "a \"query_pre_attn_scalar\" other than its size implies"};

constexpr auto kAll =
    std::to_array<Limit>({{has_activation, "another activation"},
                          {slides_somewhere, "a window, and no layer that has it"},
                          {has_usual_range, "YaRN without \"truncate\""},
                          {has_usual_betas, "YaRN's \"beta_fast\" other than 32 or \"beta_slow\" other than 1"}});
constexpr Limit kTied = {is_tied, "a head that is not the embedding"};
constexpr Limit kNoBiases = {has_no_biases, "biases of attention"};
constexpr auto kGemma = std::to_array<Limit>({kTied, kNoBiases});
constexpr auto kQwen = std::to_array<Limit>({kNoOutputBias, kNoFactors});
constexpr auto kQwen3Moe = std::to_array<Limit>({kNoOutputBias,
                                                 kNoFactors,
                                                 {has_experts_everywhere, "layers without experts"},
                                                 {is_normalised, "shares of experts that are not normalised"}});
constexpr auto kGlm = std::to_array<Limit>({kFillsHidden, kNoOutputBias, kNoFactors});
constexpr auto kGemma2 = std::to_array<Limit>({kTied,
                                               kNoBiases,
                                               kQueryScale,
                                               {has_softcaps, "no soft caps"},
                                               {slides_every_second, "layers other than every second that slide"}});
constexpr auto kGemma3 = std::to_array<Limit>({kQueryScale,
                                               kNoOutputBias,
                                               {has_no_softcap, "\"attn_logit_softcapping\""},
                                               {is_linear_at_most, "rope scaling other than linear"},
                                               {slides_plainly, "rope scaling of the layers that slide"}});
constexpr auto kOlmo2 = std::to_array<Limit>({kUntied, kFillsHidden, kTurnsWhole, kNoOutputBias, kNoFactors});
constexpr auto kOlmo3 =
    std::to_array<Limit>({kUntied,
                          kFillsHidden,
                          kTurnsWhole,
                          kNoOutputBias,
                          kNoFactors,
                          {slides_by_same_rope, "another rope base, or rope scaling, of the layers that slide"}});
constexpr auto kExaone4 = std::to_array<Limit>(
    {kFillsHidden,
     kTurnsWhole,
     {has_no_longrope, "rope scaling longrope"},
     {slides_where_64, "layers that slide in a model of other than 64 layers, or none in one of 64"}});
constexpr auto kCohere2 = std::to_array<Limit>({kTied, kFillsHidden, kNoOutputBias, kNoFactors});
constexpr auto kGranite = std::to_array<Limit>({kTurnsWhole});
constexpr auto kSmollm3 = std::to_array<Limit>(
    {kTurnsWhole,
     kNoOutputBias,
     kNoMlpBias,
     kNoFactors,
     {turns_but_every_fourth, "layers other than every fourth without rope, or a fourth with it"}});
constexpr auto kMinistral3 =
    std::to_array<Limit>({kTurnsWhole, {grows_by_yarn, "\"llama_4_scaling_beta\" without YaRN"}});
constexpr auto kPlain = std::to_array<Limit>({kTurnsWhole, kNoOutputBias, kNoMlpBias, kNoFactors});
constexpr auto kMinimaxM2 = std::to_array<Limit>({kUntied, kNoFactors});
constexpr auto kGlm4Moe = std::to_array<Limit>({kNoFactors,
                                                {has_shared_experts, "experts without an MLP beside them"},
                                                {chooses_groups, "groups of experts that are all chosen"}});
constexpr auto kGptOss = std::to_array<Limit>({kUntied, kTurnsWhole, {has_biases, "attention without biases"}});
constexpr auto kLlama4 =
    std::to_array<Limit>({kTurnsWhole,
                          kNoOutputBias,
                          {has_llama4_chunks, "chunks other than of 8192 tokens"},
                          {turns_but_every_fourth, "layers other than every fourth without rope, or a fourth with it"},
                          {has_llama4_growth, "queries that grow otherwise"},
                          {has_unturned_layer, "fewer than four layers"},
                          {has_llama4_norms,
                           "norms of queries and keys in a model of 128 experts, "
                           "or none in another"},
                          {has_experts_by_step, "experts in layers that are no multiples of one"}});
constexpr Limit kMixesBothWays = {mixes_both_ways, "no layer that attends, or none that does not"};
constexpr auto kLfm2 = std::to_array<Limit>(
    {kTurnsWhole, kNoOutputBias, kNoFactors, {has_no_convolution_bias, "biases of convolutions"}, kMixesBothWays});
constexpr auto kDeepseek =
    std::to_array<Limit>({{has_no_biases, "biases of attention"},
                          kNoMlpBias,
                          {is_default_or_yarn, "rope scaling other than yarn"},
                          {turns_neighbours, "\"rope_interleave\" false"},
                          {has_latent_eps, "norms of the latent with another epsilon than the others"},
                          {grows_scores, "YaRN whose \"mscale\" is not \"mscale_all_dim\""},
                          {keeps_query_rank, "\"q_lora_rank\" in a model of as many layers as one without"},
                          {has_shared_experts, "experts without an MLP beside them"},
                          {chooses_groups, "groups of experts that are all chosen"},
                          {adds_best_two, "groups of experts as good as their best one"}});
constexpr Limit kOneHeadSize = {has_one_head_size, "keys and values of different sizes in the delta rule"};
constexpr Limit kDeltaEps = {has_delta_eps, "an \"rms_norm_eps\" other than 1e-6, which the delta rule's norms have"};
constexpr auto kQwen3Next = std::to_array<Limit>({kOneHeadSize,
                                                  kNoBiases,
                                                  kNoFactors,
                                                  kDeltaEps,
                                                  kMixesBothWays,
                                                  {has_experts_everywhere, "layers without experts"},
                                                  {is_normalised, "shares of experts that are not normalised"}});
constexpr auto kQwen35 = std::to_array<Limit>({kOneHeadSize, kNoBiases, kNoFactors, kDeltaEps, kMixesBothWays});
constexpr auto kGemma4 =
    std::to_array<Limit>({kNoBiases,
                          {has_heads_by_kind, "heads whose size is not that of their kind of layer"},
                          {shares_of_last_two, "layers that share the keys of others than the last two before them"},
                          {shares_keys_where_seen, "values that are keys in layers that slide"},
                          {turns_gemma4, "another rope"},
                          {has_layer_vocab, "embeddings of layers for another vocabulary"}});
constexpr auto kPhimoe = std::to_array<Limit>({{never, "LayerNorm, and experts chosen by the sparse mixer"}});

struct Row {
  std::string_view model_type;
  std::span<const Limit> limits;
};

// Of families without a row nothing is known but what holds for all.
constexpr auto kRows = std::to_array<Row>({
    {"qwen2", kQwen},
    {"qwen3", kQwen},
    {"qwen3_moe", kQwen3Moe},
    {"glm", kGlm},
    {"gemma", kGemma},
    {"gemma2", kGemma2},
    {"gemma3_text", kGemma3},
    {"olmo2", kOlmo2},
    {"olmo3", kOlmo3},
    {"exaone4", kExaone4},
    {"cohere2", kCohere2},
    {"granite", kGranite},
    {"smollm3", kSmollm3},
    {"ministral3", kMinistral3},
    {"seed_oss", kPlain},
    {"ernie4_5", kPlain},
    {"hunyuan_v1_dense", kPlain},
    {"minimax_m2", kMinimaxM2},
    {"glm4_moe", kGlm4Moe},
    {"phimoe", kPhimoe},
    {"granitemoe", kGranite},
    {"gpt_oss", kGptOss},
    {"llama4_text", kLlama4},
    {"lfm2", kLfm2},
    {"deepseek_v2", kDeepseek},
    {"deepseek_v3", kDeepseek},
    {"qwen3_next", kQwen3Next},
    {"qwen3_5_text", kQwen35},
    {"qwen3_5_moe_text", kQwen35},
    {"gemma4_text", kGemma4},
});

void check(std::span<const Limit> limits, M model, F family) {
  for (const Limit& limit : limits) {
    if (limit.holds(model, family)) continue;
    throw Error(ErrorCode::kUnsupported, std::string("config.json: has ") + limit.otherwise + ", which llama.cpp's " +
                                             std::string(family.architecture) + " has not");
  }
}

}  // namespace

void check_gguf_limits(M model, F family) {
  check(kAll, model, family);
  const auto row = std::ranges::find(kRows, family.model_type, &Row::model_type);
  if (row != kRows.end()) check(row->limits, model, family);
}

}  // namespace halfbyte::convert
