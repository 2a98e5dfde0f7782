// config.json of any family, checked and with its defaults filled in: what the modules are built from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/architectures/naming.h"

namespace halfbyte::models {

enum class RopeType : std::uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongrope, kProportional };

// The name of the rope by which layers turn that slide, where others turn by another.
inline constexpr const char* kSlidingRope = "sliding_attention";

// Source: transformers modeling_rope_utils.py.
struct RopeConfig {
  std::string name = "";  // among the ropes of a model that has several
  RopeType type = RopeType::kDefault;
  std::int64_t rotary_dim = 0;   // values of a head that turn, from its begin; the others stay
  std::int64_t turning_dim = 0;  // of kProportional: of those, the pairs that really turn, times two
  bool is_interleaved = false;   // pairs are neighbours, not the two halves
  double theta = 10000.0;
  double factor = 1.0;
  double attention_factor = 1.0;  // of cosines and sines
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool is_range_truncated = true;
  std::vector<double> short_factors, long_factors;  // rotary_dim / 2 each
  std::int64_t original_max_position_embeddings = 0;

  // Up to this many tokens the frequencies do not depend on how many there are; 0: they never do.
  std::int64_t fixed_length() const noexcept;
  bool operator==(const RopeConfig&) const = default;
  // Below the rotary module's path.
  std::string buffer() const { return name.empty() ? "inv_freq" : name + ".inv_freq"; }
};

// What mixes the tokens of a layer.
enum class MixerKind : std::uint8_t { kAttention, kConvolution, kDelta, kLatent };

// Of a layer whose attention knows of positions only by what is seen.
inline constexpr std::size_t kNoRope = static_cast<std::size_t>(-1);

// The keys that a token sees, its own included.
struct Reach {
  std::int64_t window = 0;  // 0: all; else the last so many
  bool is_chunked = false;  // instead, those since the last multiple of it

  bool operator==(const Reach&) const = default;
  // The first key that the token after `past` others sees.
  constexpr std::int64_t first_seen(std::int64_t past) const noexcept {
    if (window == 0) return 0;
    return is_chunked ? past / window * window : (past < window ? 0 : past - window + 1);
  }
  // How many others there must be for the next token to see none of the first `keys`.
  constexpr std::int64_t least_past(std::int64_t keys) const noexcept {
    if (keys == 0 || window == 0) return 0;
    return is_chunked ? (keys + window - 1) / window * window : keys + window - 1;
  }
};

// What may differ from layer to layer.
struct LayerConfig {
  MixerKind mixer = MixerKind::kAttention;
  std::size_t rope = 0;         // of ModelConfig::ropes, or kNoRope
  std::int64_t window = 0;      // tokens back that a token sees, itself included; 0: all
  bool is_chunked = false;      // Reach
  bool has_experts = false;     // instead of one MLP
  bool has_growth = false;      // ModelConfig::query_growth
  bool has_mlp_beside = false;  // an MLP beside the experts, each with norms of its own

  // Where the model's do not hold; 0: they do.
  std::int64_t head_dim = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t intermediate_size = 0;
  // Of a rank that has a part of them: what they give counts once it was added to what other ranks' give.
  bool is_attention_part = false;
  bool is_mlp_part = false;
  bool are_values_keys = false;  // values are what the keys' projection gives
  std::int64_t keys_of = -1;     // the layer whose keys and values it attends to; -1: its own

  Reach reach() const noexcept { return {window, is_chunked}; }

  bool operator==(const LayerConfig&) const = default;
};

enum class Activation : std::uint8_t { kSilu, kGelu, kGeluTanh, kClamped };

// Of Activation::kClamped: with gate and up held within the limit (the gate from above alone), gate * sigmoid(alpha *
// gate) * (up + 1).
struct GateClamp {
  double alpha = 1.702;
  double limit = 7.0;

  bool operator==(const GateClamp&) const = default;
};

// How the projections to query, key and value are stored.
enum class QkvLayout : std::uint8_t {
  kSeparate,
  kFused,         // rows of all queries, all keys, all values
  kFusedPerHead,  // rows of a head's query, key and value, head by head
};

// What norms of queries and keys take together, each with one weight of all heads or one a head's, and whether before
// the rotary embedding or after it.
enum class QueryKeyNorm : std::uint8_t { kNone, kEachHead, kEachTurnedHead, kAllHeads };

// How a router's products become shares.
enum class Scoring : std::uint8_t { kSoftmax, kSigmoid, kSparseMixer };

// Queries grow with their position, so that attention to many keys stays sharp: by 1 + beta * log(1 + floor((position +
// shift) / length)). beta 0: they do not.
struct QueryGrowth {
  double beta = 0.0;
  std::int64_t length = 1;
  std::int64_t shift = 0;

  bool operator==(const QueryGrowth&) const = default;
};

// Experts of a layer that has them; num_experts is 0 where none does.
struct MoeConfig {
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t shared_size = 0;  // of the MLP that every token takes beside them; 0: none
  Scoring scoring = Scoring::kSoftmax;
  bool has_correction = false;  // a bias of each expert, which counts for the choice alone
  // Of `groups` equal ones in the order of the experts, the best `chosen_groups` are chosen from. A group is as good as
  // the sum of its best `group_best` scores.
  std::int64_t groups = 1;
  std::int64_t chosen_groups = 1;
  std::int64_t group_best = 2;
  bool is_normalised = true;  // the chosen experts' shares sum to 1, before `scale`
  double scale = 1.0;         // of shares
  bool scales_input = false;  // shares are of what experts are given, not of what they give
  double jitter = 0.0;        // of kSparseMixer: experts whose products are within twice this of the best share

  bool operator==(const MoeConfig&) const = default;
};

// Layers that mix tokens by the gated delta rule. Each key head is shared by as many value heads as its share is.
struct DeltaConfig {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;  // of a head
  std::int64_t value_dim = 0;
  std::int64_t convolution_length = 0;

  bool operator==(const DeltaConfig&) const = default;
};

// Layers whose keys and values are made from a latent vector a token. Of each head: a query and key of plain_dim and
// turned_dim, and a value of value_dim.
struct LatentConfig {
  std::int64_t query_rank = 0;  // 0: queries come from the input
  std::int64_t rank = 0;
  std::int64_t plain_dim = 0;
  std::int64_t turned_dim = 0;
  std::int64_t value_dim = 0;
  double norm_eps = 1e-6;

  std::int64_t query_dim() const noexcept { return plain_dim + turned_dim; }
  bool operator==(const LatentConfig&) const = default;
};

struct ModelConfig {
  std::string model_type;
  const Naming* naming = nullptr;  // how this checkpoint names its tensors
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t layers_ahead = 0;  // after those, of checkpoints that predict further tokens: kept, and not run
  bool is_text_part = false;      // of a model that sees or hears too: what is beside it is kept, and not run
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab_size = 0;
  // Of a rank that has a part of the head: its first row, and how many. 0: all rows.
  std::int64_t first_head_row = 0;
  std::int64_t head_rows = 0;
  // Of a rank that has a stage of the layers: its first, and how many. 0: all layers.
  std::int64_t first_layer = 0;
  std::int64_t stage_layers = 0;
  std::int64_t max_position_embeddings = 0;  // tokens that the model takes, after rope scaling
  bool tie_word_embeddings = false;
  std::vector<LayerConfig> layers;  // num_hidden_layers
  std::vector<RopeConfig> ropes;    // each once, however many layers turn by it
  MoeConfig moe;

  QkvLayout qkv = QkvLayout::kSeparate;
  bool qkv_bias = false;
  bool output_bias = false;
  bool has_output_gate = false;  // rows of a head's query are followed by those of a gate, for what the head gives
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;
  // Query and key norms have a weight each; without, only heads that turn have them.
  bool has_query_key_weights = true;
  bool has_value_norm = false;      // of each head's values, without a weight
  bool has_sinks = false;           // scores of each head's own beside those of the keys, of no value
  double query_scale = 0.0;         // of query-key products
  QueryGrowth query_growth;         // in layers that have it
  double attention_softcap = 0.0;   // 0: none
  std::int64_t sliding_window = 0;  // of config.json; which layers slide, they say
  bool is_gate_up_fused = false;    // one matrix: gate's rows, then up's
  bool mlp_bias = false;
  bool router_bias = false;
  bool expert_bias = false;          // of stacked experts
  bool is_gate_interleaved = false;  // rows of gate and up in turn, where they are fused
  GateClamp gate_clamp;
  bool head_bias = false;
  std::int64_t convolution_length = 0;  // tokens that a short convolution sees, its own included
  bool convolution_bias = false;
  DeltaConfig delta;
  LatentConfig latent;
  Activation activation = Activation::kSilu;

  double norm_eps = 1e-6;
  double norm_offset = 0.0;            // added to norm weights
  bool is_norm_weighted_wide = false;  // weighted before what was normalised is rounded, as where there is an offset
  bool is_norm_centred = false;        // LayerNorm: what is normalised is less its mean
  bool norm_bias = false;
  bool has_final_norm = true;
  bool is_parallel = false;             // attention and MLP read one norm's result, and both add to the residual
  bool is_residual_normalised = false;  // the residual is the norm's result, not its input
  double embedding_scale = 1.0;
  bool has_layer_scale = false;       // what a layer gives is multiplied by a number of its own
  std::int64_t layer_input_size = 0;  // of what each layer is given for each token beside the stream; 0: nothing
  std::int64_t layer_input_vocab = 0;
  double residual_scale = 1.0;  // of what attention and MLP add to the residual
  double logit_scale = 1.0;
  double logit_softcap = 0.0;  // 0: none

  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;

  std::int64_t query_size() const noexcept { return num_attention_heads * head_dim; }
  std::int64_t key_value_size() const noexcept { return num_key_value_heads * head_dim; }
  std::int64_t head_dim_of(const LayerConfig& layer) const noexcept {
    return layer.head_dim > 0 ? layer.head_dim : head_dim;
  }
  std::int64_t attention_heads_of(const LayerConfig& layer) const noexcept {
    return layer.num_attention_heads > 0 ? layer.num_attention_heads : num_attention_heads;
  }
  std::int64_t key_value_heads_of(const LayerConfig& layer) const noexcept {
    return layer.num_key_value_heads > 0 ? layer.num_key_value_heads : num_key_value_heads;
  }
  std::int64_t intermediate_size_of(const LayerConfig& layer) const noexcept {
    return layer.intermediate_size > 0 ? layer.intermediate_size : intermediate_size;
  }
  const LayerConfig& layer(std::int64_t index) const { return layers.at(static_cast<std::size_t>(index)); }
  // Whether this rank has that layer, the first, the last; and what tokens become before the first.
  bool has_layer(std::int64_t index) const noexcept {
    return stage_layers == 0 || (index >= first_layer && index < first_layer + stage_layers);
  }
  bool has_last_layer() const noexcept { return has_layer(num_hidden_layers - 1); }
  bool has_embedding() const noexcept { return has_layer(0) || layer_input_size > 0; }
  bool operator==(const ModelConfig&) const = default;
};

}  // namespace halfbyte::models
