#include "models/parallel/division.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "models/parallel/slices.h"

namespace halfbyte::models {
namespace {

// Features of MLPs that kernels like to find together.
constexpr std::int64_t kInnerStep = 32;
// Rows of the head that stay together: those that share a word of zero points, and a tile of kernels.
constexpr std::int64_t kHeadRows = 32;

// Bytes of rows that stay in a mapped file. Fewer would bring their neighbours, which are other ranks', into this
// process's memory: files lie there in huge pages.
constexpr std::size_t kLeastMapped = std::size_t{2} << 20;

// The rank's share of `count` things.
Range share(std::int64_t count, int rank, int size) { return {count * rank / size, count * (rank + 1) / size}; }

Range vocabulary(std::int64_t rows, int rank, int size) {
  const std::int64_t blocks = (rows + kHeadRows - 1) / kHeadRows;
  if (blocks < size) return {};
  const Range own = share(blocks, rank, size);
  return {own.begin * kHeadRows, std::min(own.end * kHeadRows, rows)};
}

Range times(const Range& range, std::int64_t factor) { return {range.begin * factor, range.end * factor}; }
Range after(const Range& range, std::int64_t rows) { return {range.begin + rows, range.end + rows}; }

// What an MLP is made of; null: not that.
struct MlpNames {
  ModuleName gate, up, fused, down;
};
constexpr MlpNames kMlp{&Naming::gate, &Naming::up, &Naming::fused_gate_up, &Naming::down};
constexpr MlpNames kSharedMlp{&Naming::shared_gate, &Naming::shared_up, nullptr, &Naming::shared_down};
constexpr MlpNames kExpert{&Naming::expert_gate, &Naming::expert_up, nullptr, &Naming::expert_down};
constexpr MlpNames kStackedExpert{nullptr, nullptr, &Naming::stacked_gate_up, &Naming::stacked_down};

const MlpNames& names_of(const WeightSet& expert) { return expert.has(kExpert.down) ? kExpert : kStackedExpert; }

// What one layer's parts are cut from.
class LayerCut {
 public:
  LayerCut(const ModelConfig& config, const LayerConfig& layer, const LayerWeights& weights)
      : config_(config),
        layer_(layer),
        weights_(weights.modules),
        experts_(weights.experts),
        heads_(config.attention_heads_of(layer)),
        key_value_heads_(config.key_value_heads_of(layer)) {}

  bool has_attention(int size) const {
    if (layer_.mixer != MixerKind::kAttention || config_.query_key_norm == QueryKeyNorm::kAllHeads) return false;
    if (config_.qkv == QkvLayout::kFusedPerHead && heads_ != key_value_heads_) return false;
    const std::int64_t step = column_step(weights_.linear(&Naming::attention_output));
    const std::int64_t width = config_.head_dim_of(layer_);
    bool out = step > 0;
    for (int rank = 0; out && rank < size; ++rank) {
      const LayerDivision part = attention(rank, size);
      out = part.heads.size() > 0 && part.key_value_heads.size() > 0 && part.heads.end * width % step == 0;
    }
    return out;
  }

  // Ranks share a head of keys and values where there are fewer of those.
  LayerDivision attention(int rank, int size) const {
    const std::int64_t group = heads_ / key_value_heads_;
    if (key_value_heads_ >= size) {
      const Range own = share(key_value_heads_, rank, size);
      return {{own.begin * group, own.end * group}, own};
    }
    if (size % key_value_heads_ != 0) return {};
    const int sharers = size / static_cast<int>(key_value_heads_);
    const std::int64_t head = rank / sharers;
    const Range own = share(group, rank % sharers, sharers);
    return {{head * group + own.begin, head * group + own.end}, {head, head + 1}};
  }

  // Of a latent attention, which has no heads of keys: as many together as end where a group of columns does.
  LayerDivision latent(int rank, int size) const {
    const std::int64_t step = column_step(weights_.linear(&Naming::latent_output));
    if (step == 0) return {};
    const std::int64_t together = step / std::gcd(step, config_.latent.value_dim);
    if (heads_ % together != 0 || heads_ / together < size) return {};
    return {.heads = times(share(heads_ / together, rank, size), together)};
  }

  // All of it or nothing: what was whole in each rank would be added as often.
  void add_feed_forward(int rank, int size, LayerDivision& out) const {
    LayerDivision own = out;
    own.inner = inner(weights_, kMlp, rank, size);
    own.shared_inner = inner(weights_, kSharedMlp, rank, size);
    if (weights_.has(kMlp.down) && own.inner.size() == 0) return;
    if (weights_.has(kSharedMlp.down) && own.shared_inner.size() == 0) return;
    if (!experts_.empty()) {
      const auto count = static_cast<std::int64_t>(experts_.size());
      if (are_alike()) own.expert_inner = inner(experts_[0], names_of(experts_[0]), rank, size);
      if (own.expert_inner.size() == 0 && count >= size) own.experts = share(count, rank, size);
      if (!own.has_experts()) return;
    }
    out = own;
  }

 private:
  // Whether all experts can be cut at the same places.
  bool are_alike() const {
    const ModuleName down = names_of(experts_[0]).down;
    const LinearWeights& first = experts_[0].linear(down);
    return std::ranges::all_of(experts_, [&](const WeightSet& expert) {
      const LinearWeights& own = expert.linear(down);
      return columns(own) == columns(first) && column_step(own) == column_step(first);
    });
  }

  static Range inner(const WeightSet& weights, const MlpNames& names, int rank, int size) {
    if (!weights.has(names.down)) return {};
    const std::int64_t all = columns(weights.linear(names.down));
    std::int64_t step = column_step(weights.linear(names.down));
    if (step == 1 && all % kInnerStep == 0 && all / kInnerStep >= size) step = kInnerStep;
    if (step == 0 || all % step != 0 || all / step < size) return {};
    return times(share(all / step, rank, size), step);
  }

  const ModelConfig& config_;
  const LayerConfig& layer_;
  const WeightSet& weights_;
  const std::vector<WeightSet>& experts_;
  std::int64_t heads_, key_value_heads_;
};

constexpr ModuleName kOfAttention[] = {&Naming::query,
                                       &Naming::key,
                                       &Naming::value,
                                       &Naming::fused_qkv,
                                       &Naming::attention_output,
                                       &Naming::latent_query,
                                       &Naming::latent_query_up,
                                       &Naming::latent_up,
                                       &Naming::latent_output};

// What weights of these take, but for the modules `cut`. Units: bytes.
std::uint64_t bytes_of(const WeightSet& weights, std::span<const ModuleName> cut) {
  std::uint64_t out = 0;
  weights.for_each([&](ModuleName module, const LinearWeights& each) {
    if (std::ranges::find(cut, module) != cut.end()) return;
    const auto* packed = std::get_if<LowBitTensor>(&each.weight);
    out += packed ? packed->size_bytes() : std::get<at::Tensor>(each.weight).nbytes();
    if (each.bias) out += each.bias->nbytes();
  });
  return out;
}

std::uint64_t bytes_of(const LayerWeights& layer, const LayerDivision& part) {
  std::vector<ModuleName> cut;
  if (part.has_attention()) cut.insert(cut.end(), std::begin(kOfAttention), std::end(kOfAttention));
  if (part.has_feed_forward()) {
    for (const MlpNames& names : {kMlp, kSharedMlp})
      cut.insert(cut.end(), {names.gate, names.up, names.fused, names.down});
  }
  std::uint64_t out = bytes_of(layer.modules, cut);
  if (part.has_experts()) return out;
  for (const WeightSet& expert : layer.experts) out += bytes_of(expert, {});
  return out;
}

// Takes parts of weights, and tells of what was copied.
struct Cutter {
  bool is_first;
  const MappedFiles& mapped;

  void rows(WeightSet& weights, ModuleName module, std::vector<Range> ranges) const {
    if (!weights.has(module)) return;
    const LinearWeights from = weights.linear(module);
    LinearWeights own = rows_of(from, ranges);
    const bool stays = ranges.size() == 1 && matrix_of(own).nbytes() >= kLeastMapped;
    weights.replace(module, in_own_memory(std::move(own), stays));
    if (!stays) tell(from);
  }
  void columns(WeightSet& weights, ModuleName module, const Range& range) const {
    const LinearWeights from = weights.linear(module);
    weights.replace(module, columns_of(from, range, is_first));
    tell(from);
  }
  void keep(WeightSet& weights, ModuleName module) const {
    weights.replace(module, in_own_memory(weights.linear(module), /*stays_mapped=*/true));
  }

 private:
  static const at::Tensor& matrix_of(const LinearWeights& weights) {
    const auto* packed = std::get_if<LowBitTensor>(&weights.weight);
    return packed ? packed->codes : std::get<at::Tensor>(weights.weight);
  }
  // Copies what is part of something larger in memory, so that the rest of that can go.
  LinearWeights in_own_memory(LinearWeights own, bool stays_mapped) const {
    const auto copy = [&](at::Tensor& tensor) {
      const bool is_mapped = mapped.has(tensor);
      if (is_mapped ? !stays_mapped : tensor.storage().nbytes() > tensor.nbytes()) tensor = tensor.clone();
    };
    if (auto* packed = std::get_if<LowBitTensor>(&own.weight)) {
      copy(packed->codes);
      copy(packed->scales);
      for (const LowBitTensor::Extra& extra : LowBitTensor::extras()) {
        if (auto& part = packed->*extra.tensor) copy(*part);
      }
    } else {
      copy(std::get<at::Tensor>(own.weight));
    }
    if (own.bias) copy(*own.bias);
    return own;
  }
  void tell(const LinearWeights& from) const {
    mapped.let_go(matrix_of(from));
    if (const auto* packed = std::get_if<LowBitTensor>(&from.weight)) mapped.let_go(packed->scales);
  }
};

// Norms of each head by itself, where each has weights of its own. Shape: (heads, head_dim) -> those heads.
void take_heads(WeightSet& weights, ModuleName module, const Range& heads) {
  if (!weights.has(module)) return;
  LinearWeights own = weights.linear(module);
  auto& weight = std::get<at::Tensor>(own.weight);
  if (weight.dim() < 2) return;
  weight = weight.narrow(0, heads.begin, heads.size()).contiguous();
  if (own.bias && own.bias->dim() >= 2) own.bias = own.bias->narrow(0, heads.begin, heads.size()).contiguous();
  weights.replace(module, std::move(own));
}

void cut_attention(const ModelConfig& config, const LayerConfig& layer, const LayerDivision& part, const Cutter& cutter,
                   WeightSet& weights) {
  const std::int64_t width = config.head_dim_of(layer), heads = config.attention_heads_of(layer);
  const std::int64_t keys = config.key_value_heads_of(layer);
  const Range own_heads = times(part.heads, width), own_keys = times(part.key_value_heads, width);
  cutter.rows(weights, &Naming::query, {times(own_heads, config.has_output_gate ? 2 : 1)});
  cutter.rows(weights, &Naming::key, {own_keys});
  cutter.rows(weights, &Naming::value, {own_keys});
  if (config.qkv == QkvLayout::kFusedPerHead)
    cutter.rows(weights, &Naming::fused_qkv, {times(own_heads, 3)});
  else
    cutter.rows(weights, &Naming::fused_qkv,
                {own_heads, after(own_keys, heads * width), after(own_keys, (heads + keys) * width)});
  take_heads(weights, &Naming::query_norm, part.heads);
  take_heads(weights, &Naming::key_norm, part.key_value_heads);
  cutter.rows(weights, &Naming::sinks, {part.heads});
  cutter.columns(weights, &Naming::attention_output, own_heads);
}

void cut_latent(const LatentConfig& latent, const LayerDivision& part, const Cutter& cutter, WeightSet& weights) {
  cutter.rows(weights, &Naming::latent_query, {times(part.heads, latent.query_dim())});
  cutter.rows(weights, &Naming::latent_query_up, {times(part.heads, latent.query_dim())});
  cutter.rows(weights, &Naming::latent_up, {times(part.heads, latent.plain_dim + latent.value_dim)});
  cutter.columns(weights, &Naming::latent_output, times(part.heads, latent.value_dim));
}

void cut_mlp(const ModelConfig& config, const MlpNames& names, const Range& inner, const Cutter& cutter,
             WeightSet& weights) {
  if (inner.size() == 0) return;
  const std::int64_t all = columns(weights.linear(names.down));
  cutter.rows(weights, names.gate, {inner});
  cutter.rows(weights, names.up, {inner});
  if (config.is_gate_interleaved)
    cutter.rows(weights, names.fused, {times(inner, 2)});
  else
    cutter.rows(weights, names.fused, {inner, after(inner, all)});
  cutter.columns(weights, names.down, inner);
}

void cut_experts(const ModelConfig& config, const LayerDivision& part, const Cutter& cutter, LayerWeights& layer) {
  if (part.experts.size() > 0) {
    layer.experts.erase(layer.experts.begin() + part.experts.end, layer.experts.end());
    layer.experts.erase(layer.experts.begin(), layer.experts.begin() + part.experts.begin);
    layer.first_expert = part.experts.begin;
    for (WeightSet& expert : layer.experts) {
      std::vector<ModuleName> modules;
      expert.for_each([&](ModuleName module, const LinearWeights&) { modules.push_back(module); });
      for (const ModuleName module : modules) cutter.keep(expert, module);
    }
  }
  for (WeightSet& expert : layer.experts) cut_mlp(config, names_of(expert), part.expert_inner, cutter, expert);
}

}  // namespace

std::string Division::description() const {
  const auto count = [&](auto has) { return std::to_string(std::ranges::count_if(layers, has)); };
  std::string out = "rank " + std::to_string(rank) + " of " + std::to_string(size);
  const std::string whole = std::to_string(whole_bytes / 1'000'000) + " MB";
  if (stage.count > 1) {
    out += ", stage " + std::to_string(stage.index + 1) + " of " + std::to_string(stage.count) + ", has layers " +
           std::to_string(own_layers.begin) + " to " + std::to_string(own_layers.end - 1) + " of " +
           std::to_string(layers.size());
  }
  if (stage.places == 1)
    return out + ": whole, and " + (vocabulary.size() > 0 ? "a part of " : "") + "the head (what is whole: " + whole +
           ")";
  const std::string mlp = count([](const LayerDivision& layer) { return layer.inner.size() > 0; });
  const std::string experts = is_of_experts ? " and the experts of " + count(&LayerDivision::has_experts) : "";
  return out + ": of " + std::to_string(own_layers.size()) + " layers the attention of " +
         count(&LayerDivision::has_attention) + (is_of_experts ? ", " : " and ") + "the MLP of " + mlp + experts +
         " are divided" + (vocabulary.size() > 0 ? ", and the head" : "") + "; all else is whole in each rank" +
         (stage.count == 1 ? "" : " of the stage") + " (" + whole + ")";
}

Division divide(const ModelConfig& config, const ModelWeights& weights, int rank, int size, int stages) {
  const Stage stage = stage_of(rank, size, stages);
  const Range own = stages == 1 ? Range{0, config.num_hidden_layers}
                                : Range{config.first_layer, config.first_layer + config.stage_layers};
  Division out{rank, size, stage, own, vocabulary(config.vocab_size, rank, size), {}};
  out.is_of_experts = std::ranges::any_of(config.layers, &LayerConfig::has_experts);
  out.layers.resize(weights.layers.size());
  // Layers that read the keys of others have as many heads of them as those.
  const bool are_keys_shared = std::ranges::any_of(config.layers, [](const LayerConfig& l) { return l.keys_of >= 0; });
  bool are_all = true;
  for (std::int64_t layer = own.begin; stage.places > 1 && layer < own.end; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    const LayerCut cut(config, config.layers.at(i), weights.layers[i]);
    LayerDivision& part = out.layers[i];
    if (cut.has_attention(stage.places)) part = cut.attention(stage.place, stage.places);
    are_all &= part.has_attention();
    if (config.layers[i].mixer == MixerKind::kLatent) part = cut.latent(stage.place, stage.places);
    cut.add_feed_forward(stage.place, stage.places, part);
  }
  if (are_keys_shared && !are_all) {
    for (LayerDivision& layer : out.layers) layer.heads = layer.key_value_heads = {};
  }
  constexpr ModuleName kHead[] = {&Naming::head};
  out.whole_bytes = bytes_of(weights.modules, out.vocabulary.size() > 0 ? kHead : std::span<const ModuleName>());
  for (std::size_t i = 0; i < weights.layers.size(); ++i) out.whole_bytes += bytes_of(weights.layers[i], out.layers[i]);
  return out;
}

ModelConfig divided(const ModelConfig& config, const Division& division) {
  ModelConfig out = config;
  out.first_head_row = division.vocabulary.begin;
  out.head_rows = division.vocabulary.size();
  for (std::size_t i = 0; i < division.layers.size(); ++i) {
    const LayerDivision& part = division.layers[i];
    LayerConfig& layer = out.layers.at(i);
    layer.is_attention_part = part.has_attention();
    layer.is_mlp_part = part.has_feed_forward();
    if (layer.is_attention_part) {
      layer.num_attention_heads = part.heads.size();
      layer.num_key_value_heads = part.key_value_heads.size();
    }
    if (part.inner.size() > 0) layer.intermediate_size = part.inner.size();
  }
  return out;
}

ModelWeights divided(const ModelConfig& config, ModelWeights weights, const Division& division,
                     const MappedFiles& mapped) {
  const Cutter cutter{division.stage.place == 0, mapped};
  if (division.vocabulary.size() > 0) cutter.rows(weights.modules, &Naming::head, {division.vocabulary});
  for (std::size_t i = 0; i < division.layers.size(); ++i) {
    const LayerDivision& part = division.layers[i];
    LayerWeights& layer = weights.layers[i];
    if (part.has_attention() && config.layers.at(i).mixer == MixerKind::kLatent)
      cut_latent(config.latent, part, cutter, layer.modules);
    else if (part.has_attention())
      cut_attention(config, config.layers.at(i), part, cutter, layer.modules);
    cut_mlp(config, kMlp, part.inner, cutter, layer.modules);
    cut_mlp(config, kSharedMlp, part.shared_inner, cutter, layer.modules);
    cut_experts(config, part, cutter, layer);
  }
  return weights;
}

}  // namespace halfbyte::models
