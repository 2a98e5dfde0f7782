#include "models/architectures/tensor_table.h"

#include <algorithm>
#include <charconv>

namespace halfbyte::models {
namespace {

using M = const ModelConfig&;
using L = const LayerConfig&;

std::int64_t hidden(M m, L) { return m.hidden_size; }
std::int64_t vocab(M m, L) { return m.vocab_size; }
std::int64_t queries(M m, L l) { return m.num_attention_heads * m.head_dim_of(l); }
std::int64_t gated_queries(M m, L l) { return queries(m, l) * (m.has_output_gate ? 2 : 1); }
std::int64_t keys(M m, L l) { return m.key_value_heads_of(l) * m.head_dim_of(l); }
std::int64_t queries_keys_values(M m, L l) { return queries(m, l) + 2 * keys(m, l); }
bool is_norm_of_all(M m) { return m.query_key_norm == QueryKeyNorm::kAllHeads; }
std::int64_t query_norm(M m, L l) { return is_norm_of_all(m) ? queries(m, l) : m.head_dim_of(l); }
std::int64_t key_norm(M m, L l) { return is_norm_of_all(m) ? keys(m, l) : m.head_dim_of(l); }
std::int64_t layer_inputs(M m, L) { return m.num_hidden_layers * m.layer_input_size; }
std::int64_t layer_input(M m, L) { return m.layer_input_size; }
std::int64_t layer_input_vocab(M m, L) { return m.layer_input_vocab; }
std::int64_t three_hidden(M m, L) { return 3 * m.hidden_size; }
std::int64_t one(M, L) { return 1; }
std::int64_t convolution_length(M m, L) { return m.convolution_length; }
std::int64_t latent_queries(M m, L) { return m.num_attention_heads * m.latent.query_dim(); }
std::int64_t latent_query_rank(M m, L) { return m.latent.query_rank; }
std::int64_t latent_rank(M m, L) { return m.latent.rank; }
std::int64_t latent_and_key(M m, L) { return m.latent.rank + m.latent.turned_dim; }
std::int64_t latent_made(M m, L) { return m.num_attention_heads * (m.latent.plain_dim + m.latent.value_dim); }
std::int64_t latent_results(M m, L) { return m.num_attention_heads * m.latent.value_dim; }
std::int64_t delta_values(M m, L) { return m.delta.value_heads * m.delta.value_dim; }
std::int64_t delta_mixed(M m, L l) { return 2 * m.delta.key_heads * m.delta.key_dim + delta_values(m, l); }
std::int64_t delta_fused(M m, L l) { return delta_mixed(m, l) + delta_values(m, l); }
std::int64_t delta_heads(M m, L) { return m.delta.value_heads; }
std::int64_t two_delta_heads(M m, L) { return 2 * m.delta.value_heads; }
std::int64_t delta_length(M m, L) { return m.delta.convolution_length; }
std::int64_t delta_dim(M m, L) { return m.delta.value_dim; }
std::int64_t inner(M m, L l) { return m.intermediate_size_of(l); }
std::int64_t gate_and_up(M m, L l) { return 2 * m.intermediate_size_of(l); }
std::int64_t experts(M m, L) { return m.moe.num_experts; }
std::int64_t expert_inner(M m, L) { return m.moe.intermediate_size; }
std::int64_t shared_inner(M m, L) { return m.moe.shared_size; }
std::int64_t expert_gate_and_up(M m, L) { return 2 * m.moe.intermediate_size; }

bool has_final_norm(M m, L) { return m.has_final_norm; }
bool is_qkv_separate(M m, L) { return m.qkv == QkvLayout::kSeparate; }
bool has_keys(M m, L l) { return is_qkv_separate(m, l) && l.keys_of < 0; }
bool has_values(M m, L l) { return has_keys(m, l) && !l.are_values_keys; }
bool has_layer_inputs(M m, L) { return m.layer_input_size > 0; }
bool has_layer_scale(M m, L) { return m.has_layer_scale; }
bool has_mlp_beside(M, L l) { return l.has_mlp_beside; }
bool is_qkv_fused(M m, L) { return m.qkv != QkvLayout::kSeparate; }
bool has_query_key_norm(M m, L) { return m.query_key_norm != QueryKeyNorm::kNone && m.has_query_key_weights; }
bool has_key_norm(M m, L l) { return has_query_key_norm(m, l) && l.keys_of < 0; }
bool has_sinks(M m, L) { return m.has_sinks; }
bool has_expert_bias(M m, L) { return m.expert_bias; }
std::int64_t heads(M m, L) { return m.num_attention_heads; }
bool has_query_rank(M m, L) { return m.latent.query_rank > 0; }
bool has_no_query_rank(M m, L) { return m.latent.query_rank == 0; }
bool is_gate_up_separate(M m, L) { return !m.is_gate_up_fused; }
bool is_gate_up_fused(M m, L) { return m.is_gate_up_fused; }
bool has_correction(M m, L) { return m.moe.has_correction; }
bool has_shared(M m, L) { return m.moe.shared_size > 0; }
bool are_experts_apart(M m, L) { return m.naming->stacked_gate_up.empty(); }

using N = Naming;
using C = ModelConfig;
using P = Place;

// Module, place, role, shape, presence, bias.
constexpr auto kTable = std::to_array<TensorRow>({
    {&N::embedding, P::kModel, Role::kEmbedding, {vocab, hidden}},
    {&N::layer_embedding, P::kModel, Role::kEmbedding, {layer_input_vocab, layer_inputs}, has_layer_inputs},
    {&N::layer_projection, P::kModel, Role::kLinear, {layer_inputs, hidden}, has_layer_inputs},
    {&N::layer_projection_norm, P::kModel, Role::kNorm, {layer_input}, has_layer_inputs},
    {&N::input_norm, P::kLayer, Role::kNorm, {hidden}, nullptr, &C::norm_bias},
    {&N::query, P::kAttention, Role::kLinear, {gated_queries, hidden}, is_qkv_separate, &C::qkv_bias},
    {&N::key, P::kAttention, Role::kLinear, {keys, hidden}, has_keys, &C::qkv_bias},
    {&N::value, P::kAttention, Role::kLinear, {keys, hidden}, has_values, &C::qkv_bias},
    {&N::fused_qkv, P::kAttention, Role::kLinear, {queries_keys_values, hidden}, is_qkv_fused, &C::qkv_bias},
    {&N::query_norm, P::kAttention, Role::kNorm, {query_norm}, has_query_key_norm},
    {&N::key_norm, P::kAttention, Role::kNorm, {key_norm}, has_key_norm},
    {&N::attention_output, P::kAttention, Role::kLinear, {hidden, queries}, nullptr, &C::output_bias},
    {&N::sinks, P::kAttention, Role::kSink, {heads}, has_sinks, nullptr, true},
    {&N::layer_rotary, P::kAttention, Role::kBuffer},
    {&N::latent_query, P::kLatent, Role::kLinear, {latent_queries, hidden}, has_no_query_rank},
    {&N::latent_query_down, P::kLatent, Role::kLinear, {latent_query_rank, hidden}, has_query_rank, &C::qkv_bias},
    {&N::latent_query_norm, P::kLatent, Role::kNorm, {latent_query_rank}, has_query_rank},
    {&N::latent_query_up, P::kLatent, Role::kLinear, {latent_queries, latent_query_rank}, has_query_rank},
    {&N::latent_down, P::kLatent, Role::kLinear, {latent_and_key, hidden}, nullptr, &C::qkv_bias},
    {&N::latent_norm, P::kLatent, Role::kNorm, {latent_rank}},
    {&N::latent_up, P::kLatent, Role::kLinear, {latent_made, latent_rank}},
    {&N::latent_output, P::kLatent, Role::kLinear, {hidden, latent_results}, nullptr, &C::output_bias},
    {&N::convolution_input, P::kConvolution, Role::kLinear, {three_hidden, hidden}, nullptr, &C::convolution_bias},
    {&N::convolution_kernel,
     P::kConvolution,
     Role::kConvolution,
     {hidden, one, convolution_length},
     nullptr,
     &C::convolution_bias},
    {&N::convolution_output, P::kConvolution, Role::kLinear, {hidden, hidden}, nullptr, &C::convolution_bias},
    {&N::delta_input, P::kDelta, Role::kLinear, {delta_mixed, hidden}},
    {&N::delta_gate, P::kDelta, Role::kLinear, {delta_values, hidden}},
    {&N::delta_fused, P::kDelta, Role::kLinear, {delta_fused, hidden}},
    {&N::delta_rate, P::kDelta, Role::kDecay, {delta_heads, hidden}},
    {&N::delta_decay, P::kDelta, Role::kDecay, {delta_heads, hidden}},
    {&N::delta_fused_rates, P::kDelta, Role::kDecay, {two_delta_heads, hidden}},
    {&N::delta_kernel, P::kDelta, Role::kConvolution, {delta_mixed, one, delta_length}},
    {&N::delta_time_bias, P::kDelta, Role::kDecay, {delta_heads}, nullptr, nullptr, true},
    {&N::delta_log_decay, P::kDelta, Role::kDecay, {delta_heads}, nullptr, nullptr, true},
    {&N::delta_norm, P::kDelta, Role::kNorm, {delta_dim}},
    {&N::delta_output, P::kDelta, Role::kLinear, {hidden, delta_values}},
    {&N::attention_output_norm, P::kLayer, Role::kNorm, {hidden}, nullptr, &C::norm_bias},
    {&N::mlp_norm, P::kLayer, Role::kNorm, {hidden}, nullptr, &C::norm_bias},
    {&N::gate, P::kMlp, Role::kLinear, {inner, hidden}, is_gate_up_separate, &C::mlp_bias},
    {&N::up, P::kMlp, Role::kLinear, {inner, hidden}, is_gate_up_separate, &C::mlp_bias},
    {&N::fused_gate_up, P::kMlp, Role::kLinear, {gate_and_up, hidden}, is_gate_up_fused, &C::mlp_bias},
    {&N::down, P::kMlp, Role::kLinear, {hidden, inner}, nullptr, &C::mlp_bias},
    {&N::mlp_result_norm, P::kLayer, Role::kNorm, {hidden}, has_mlp_beside},
    {&N::experts_norm, P::kLayer, Role::kNorm, {hidden}, has_mlp_beside},
    {&N::router_scale, P::kMoe, Role::kScale, {hidden}, nullptr, nullptr, true},
    {&N::expert_scale, P::kMoe, Role::kScale, {experts}, nullptr, nullptr, true},
    {&N::router, P::kMoe, Role::kRouter, {experts, hidden}, nullptr, &C::router_bias},
    {&N::correction, P::kMoe, Role::kCorrection, {experts}, has_correction, nullptr, true},
    {&N::expert_gate, P::kExpert, Role::kLinear, {expert_inner, hidden}, are_experts_apart},
    {&N::expert_up, P::kExpert, Role::kLinear, {expert_inner, hidden}, are_experts_apart},
    {&N::expert_down, P::kExpert, Role::kLinear, {hidden, expert_inner}, are_experts_apart},
    {&N::stacked_gate_up, P::kExperts, Role::kLinear, {experts, expert_gate_and_up, hidden}, nullptr, nullptr, true},
    {&N::stacked_down, P::kExperts, Role::kLinear, {experts, hidden, expert_inner}, nullptr, nullptr, true},
    {&N::stacked_gate_up_bias, P::kExperts, Role::kBias, {experts, expert_gate_and_up}, has_expert_bias, nullptr, true},
    {&N::stacked_down_bias, P::kExperts, Role::kBias, {experts, hidden}, has_expert_bias, nullptr, true},
    {&N::shared_gate, P::kShared, Role::kLinear, {shared_inner, hidden}, has_shared, &C::mlp_bias},
    {&N::shared_up, P::kShared, Role::kLinear, {shared_inner, hidden}, has_shared, &C::mlp_bias},
    {&N::shared_down, P::kShared, Role::kLinear, {hidden, shared_inner}, has_shared, &C::mlp_bias},
    {&N::shared_router, P::kMoe, Role::kRouter, {one, hidden}, has_shared},
    {&N::experts_result_norm, P::kLayer, Role::kNorm, {hidden}, has_mlp_beside},
    {&N::layer_input_gate, P::kLayer, Role::kLinear, {layer_input, hidden}, has_layer_inputs},
    {&N::layer_input_output, P::kLayer, Role::kLinear, {hidden, layer_input}, has_layer_inputs},
    {&N::layer_input_norm, P::kLayer, Role::kNorm, {hidden}, has_layer_inputs},
    {&N::layer_scale, P::kLayer, Role::kScale, {one}, has_layer_scale, nullptr, true},
    {&N::mlp_output_norm, P::kLayer, Role::kNorm, {hidden}, nullptr, &C::norm_bias},
    {&N::final_norm, P::kModel, Role::kNorm, {hidden}, has_final_norm, &C::norm_bias},
    {&N::head, P::kModel, Role::kHead, {vocab, hidden}, nullptr, &C::head_bias},
    {&N::rotary, P::kModel, Role::kBuffer},
});

bool has(const LayerConfig& layer, Place place) noexcept {
  switch (place) {
    case Place::kModel:
    case Place::kLayer:
      return true;
    case Place::kAttention:
      return layer.mixer == MixerKind::kAttention;
    case Place::kLatent:
      return layer.mixer == MixerKind::kLatent;
    case Place::kConvolution:
      return layer.mixer == MixerKind::kConvolution;
    case Place::kDelta:
      return layer.mixer == MixerKind::kDelta;
    case Place::kMlp:
      return !layer.has_experts || layer.has_mlp_beside;
    case Place::kMoe:
    case Place::kExpert:
    case Place::kExperts:
    case Place::kShared:
      return layer.has_experts;
  }
  return false;
}

class Walk {
 public:
  explicit Walk(const ModelConfig& config) : config_(config), names_(*config.naming) {}

  std::vector<ModuleAt> all() {
    const auto is_models = [](const TensorRow& row) { return row.place == Place::kModel; };
    const auto first = std::ranges::find_if_not(kTable, is_models);
    const auto last = std::find_if(first, kTable.end(), is_models);
    add_each({kTable.begin(), first}, -1);
    for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) add_each({first, last}, layer);
    add_each({last, kTable.end()}, -1);
    return std::move(out_);
  }

 private:
  using Rows = std::span<const TensorRow>;

  // `index`: -1: the model's.
  const LayerConfig& layer_of(std::int64_t index) const {
    static const LayerConfig none;
    return index < 0 ? none : config_.layer(index);
  }

  bool is_wanted(const TensorRow& row, const LayerConfig& layer) const {
    if (!row.shape[0] || (names_.*row.module).empty() || !has(layer, row.place)) return false;
    return !row.is_present || row.is_present(config_, layer);
  }

  void add(const TensorRow& row, std::int64_t index, std::int64_t expert) {
    const LayerConfig& layer = layer_of(index);
    if (!is_wanted(row, layer)) return;
    ModuleAt out{&row, path_above(names_, row.place, std::to_string(index), std::to_string(expert)), index, expert};
    out.path += names_.*row.module;
    for (const Size size : row.shape) {
      if (size) out.shape.push_back(size(config_, layer));
    }
    out.has_bias = row.has_bias && config_.*row.has_bias;
    out_.push_back(std::move(out));
  }

  // Rows of experts follow each other: expert by expert, each its own.
  void add_each(Rows rows, std::int64_t layer) {
    for (auto row = rows.begin(); row != rows.end();) {
      const auto is_other = [&](const TensorRow& other) { return other.place != Place::kExpert; };
      const auto end = std::find_if(row, rows.end(), is_other);
      for (std::int64_t expert = 0; row != end && expert < config_.moe.num_experts; ++expert) {
        for (const TensorRow& own : Rows(row, end)) add(own, layer, expert);
      }
      if (row == end) add(*row, layer, -1);
      row = row == end ? row + 1 : end;
    }
  }

  const ModelConfig& config_;
  const Naming& names_;
  std::vector<ModuleAt> out_;
};

// Of the layers that follow the last one that is run.
bool is_ahead(const ModelConfig& config, std::string_view name) noexcept {
  const std::string_view layers = config.naming->layers;
  if (!name.starts_with(layers) || name.size() <= layers.size() || name[layers.size()] != '.') return false;
  const std::string_view rest = name.substr(layers.size() + 1);
  std::int64_t index = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != '.') return false;
  return index >= config.num_hidden_layers && index < config.num_hidden_layers + config.layers_ahead;
}

// What a layer that attends to another's keys is stored with all the same, as Gemma 4 was released.
bool is_unread(const ModelConfig& config, std::string_view name) {
  const Naming& names = *config.naming;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].keys_of < 0) continue;
    const std::string above = path_above(names, Place::kAttention, std::to_string(i), "");
    for (const std::string_view module : {names.key, names.value, names.key_norm}) {
      if (name.starts_with(above + std::string(module) + ".")) return true;
    }
  }
  return false;
}

}  // namespace

std::string_view TensorRow::suffix() const noexcept {
  if (role == Role::kBuffer) return ".inv_freq";
  return is_bare ? "" : ".weight";
}

std::span<const TensorRow> tensor_table() noexcept { return kTable; }

const TensorRow& row_of(ModuleName module) noexcept { return *std::ranges::find(kTable, module, &TensorRow::module); }

bool has_place(const Naming& naming, Place place) noexcept {
  if (place == Place::kLatent) return !naming.latent_down.empty();
  if (place == Place::kConvolution) return !naming.convolution.empty();
  if (place == Place::kDelta) return !naming.delta.empty();
  const bool is_of_experts =
      place == Place::kMoe || place == Place::kExpert || place == Place::kExperts || place == Place::kShared;
  return !is_of_experts || !naming.moe.empty() || naming.are_experts_beside;
}

std::string path_above(const Naming& naming, Place place, std::string_view layer, std::string_view expert) {
  const auto below = [](const std::string& path, std::string_view name) {
    return name.empty() ? path : path + std::string(name) + ".";
  };
  if (place == Place::kModel) return "";
  const std::string own = below(below("", naming.layers), layer);
  if (place == Place::kLayer) return own;
  if (place == Place::kAttention || place == Place::kLatent) return below(own, naming.attention);
  if (place == Place::kConvolution) return below(own, naming.convolution);
  if (place == Place::kDelta) return below(own, naming.delta);
  if (place == Place::kMlp) return below(own, naming.mlp);
  const std::string moe = below(own, naming.moe);
  if (place == Place::kMoe) return moe;
  if (place == Place::kShared) return below(moe, naming.shared);
  const std::string experts = below(moe, naming.experts);
  return place == Place::kExperts ? experts : below(experts, expert);
}

bool is_not_run(const ModelConfig& config, std::string_view name) {
  const Naming& names = *config.naming;
  const auto is_below = [&](std::string_view path) {
    return !path.empty() && name.starts_with(path) && name.substr(path.size()).starts_with('.');
  };
  if (config.is_text_part && !is_below(names.text.empty() ? std::string_view("model") : names.text)) return true;
  return is_below(names.ahead) || is_ahead(config, name) || is_unread(config, name);
}

std::vector<ModuleAt> modules_of(const ModelConfig& config) { return Walk(config).all(); }

}  // namespace halfbyte::models
