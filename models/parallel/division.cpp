#include "models/parallel/division.h"

#include <algorithm>
#include <span>

#include "models/parallel/slices.h"

namespace halfbyte::models {
namespace {

// Features of MLPs that kernels like to find together.
constexpr std::int64_t kInnerStep = 32;
// Rows of the head that stay together: those that share a word of zero points, and a tile of kernels.
constexpr std::int64_t kHeadRows = 32;

// The rank's share of `count` things.
Range share(std::int64_t count, int rank, int size) { return {count * rank / size, count * (rank + 1) / size}; }

Range vocabulary(std::int64_t rows, int rank, int size) {
  const std::int64_t blocks = (rows + kHeadRows - 1) / kHeadRows;
  if (blocks < size) return {};
  const Range own = share(blocks, rank, size);
  return {own.begin * kHeadRows, std::min(own.end * kHeadRows, rows)};
}

// What one layer's parts are cut from.
class LayerCut {
 public:
  LayerCut(const ModelConfig& config, const LayerConfig& layer, const WeightSet& weights)
      : config_(config),
        layer_(layer),
        weights_(weights),
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
      return {{own.begin * group, own.end * group}, own, {}};
    }
    if (size % key_value_heads_ != 0) return {};
    const int sharers = size / static_cast<int>(key_value_heads_);
    const std::int64_t head = rank / sharers;
    const Range own = share(group, rank % sharers, sharers);
    return {{head * group + own.begin, head * group + own.end}, {head, head + 1}, {}};
  }

  Range inner(int rank, int size) const {
    if (layer_.has_experts || layer_.has_mlp_beside || !weights_.has(&Naming::down)) return {};
    const std::int64_t all = columns(weights_.linear(&Naming::down));
    std::int64_t step = column_step(weights_.linear(&Naming::down));
    if (step == 1 && all % kInnerStep == 0) step = kInnerStep;
    if (step == 0 || all % step != 0 || all / step < size) return {};
    const Range steps = share(all / step, rank, size);
    return {steps.begin * step, steps.end * step};
  }

 private:
  const ModelConfig& config_;
  const LayerConfig& layer_;
  const WeightSet& weights_;
  std::int64_t heads_, key_value_heads_;
};

constexpr ModuleName kOfAttention[] = {&Naming::query, &Naming::key, &Naming::value, &Naming::fused_qkv,
                                       &Naming::attention_output};
constexpr ModuleName kOfMlp[] = {&Naming::gate, &Naming::up, &Naming::fused_gate_up, &Naming::down};

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
  if (part.heads.size() > 0) cut.insert(cut.end(), std::begin(kOfAttention), std::end(kOfAttention));
  if (part.inner.size() > 0) cut.insert(cut.end(), std::begin(kOfMlp), std::end(kOfMlp));
  std::uint64_t out = bytes_of(layer.modules, cut);
  for (const WeightSet& expert : layer.experts) out += bytes_of(expert, {});
  return out;
}

// So that the rest of them can go.
LinearWeights copy_of(LinearWeights weights) {
  if (auto* packed = std::get_if<LowBitTensor>(&weights.weight)) {
    packed->codes = packed->codes.clone();
    packed->scales = packed->scales.clone();
    if (packed->zero_points) packed->zero_points = packed->zero_points->clone();
    if (packed->offsets) packed->offsets = packed->offsets->clone();
  } else {
    weights.weight = std::get<at::Tensor>(weights.weight).clone();
  }
  return weights;
}

// Takes parts of weights, and tells of what was copied.
struct Cutter {
  bool is_first;
  const MappedFiles& mapped;

  void rows(WeightSet& weights, ModuleName module, std::vector<Range> ranges) const {
    if (!weights.has(module)) return;
    const LinearWeights from = weights.linear(module);
    const auto* packed = std::get_if<LowBitTensor>(&from.weight);
    const bool is_mapped = mapped.has(packed ? packed->codes : std::get<at::Tensor>(from.weight));
    LinearWeights own = rows_of(from, ranges);
    weights.replace(module, is_mapped ? std::move(own) : copy_of(std::move(own)));
    if (ranges.size() > 1) tell(from);
  }
  void columns(WeightSet& weights, ModuleName module, const Range& range) const {
    const LinearWeights from = weights.linear(module);
    weights.replace(module, columns_of(from, range, is_first));
    tell(from);
  }

 private:
  void tell(const LinearWeights& from) const {
    const auto* packed = std::get_if<LowBitTensor>(&from.weight);
    mapped.let_go(packed ? packed->codes : std::get<at::Tensor>(from.weight));
    if (packed) mapped.let_go(packed->scales);
  }
};

Range times(const Range& range, std::int64_t factor) { return {range.begin * factor, range.end * factor}; }
Range after(const Range& range, std::int64_t rows) { return {range.begin + rows, range.end + rows}; }

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

void cut_mlp(const Range& inner, const Cutter& cutter, WeightSet& weights) {
  const std::int64_t all = columns(weights.linear(&Naming::down));
  cutter.rows(weights, &Naming::gate, {inner});
  cutter.rows(weights, &Naming::up, {inner});
  cutter.rows(weights, &Naming::fused_gate_up, {inner, after(inner, all)});
  cutter.columns(weights, &Naming::down, inner);
}

}  // namespace

std::string Division::description() const {
  const auto count = [&](auto of) {
    return std::to_string(
        std::ranges::count_if(layers, [&](const LayerDivision& layer) { return (layer.*of).size() > 0; }));
  };
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
  return out + ": of " + std::to_string(own_layers.size()) + " layers the attention of " +
         count(&LayerDivision::heads) + " and the MLP of " + count(&LayerDivision::inner) + " are divided" +
         (vocabulary.size() > 0 ? ", and the head" : "") + "; all else is whole in each rank" +
         (stage.count == 1 ? "" : " of the stage") + " (" + whole + ")";
}

Division divide(const ModelConfig& config, const ModelWeights& weights, int rank, int size, int stages) {
  const Stage stage = stage_of(rank, size, stages);
  const Range own = stages == 1 ? Range{0, config.num_hidden_layers}
                                : Range{config.first_layer, config.first_layer + config.stage_layers};
  Division out{rank, size, stage, own, vocabulary(config.vocab_size, rank, size), {}};
  out.layers.resize(weights.layers.size());
  // Layers that read the keys of others have as many heads of them as those.
  const bool are_keys_shared = std::ranges::any_of(config.layers, [](const LayerConfig& l) { return l.keys_of >= 0; });
  bool are_all = true;
  for (std::int64_t layer = own.begin; stage.places > 1 && layer < own.end; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    const LayerCut cut(config, config.layers.at(i), weights.layers[i].modules);
    const bool has_attention = cut.has_attention(stage.places);
    are_all &= has_attention;
    if (has_attention) out.layers[i] = cut.attention(stage.place, stage.places);
    out.layers[i].inner = cut.inner(stage.place, stage.places);
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
    layer.is_attention_part = part.heads.size() > 0;
    layer.is_mlp_part = part.inner.size() > 0;
    if (layer.is_attention_part) {
      layer.num_attention_heads = part.heads.size();
      layer.num_key_value_heads = part.key_value_heads.size();
    }
    if (layer.is_mlp_part) layer.intermediate_size = part.inner.size();
  }
  return out;
}

ModelWeights divided(const ModelConfig& config, ModelWeights weights, const Division& division,
                     const MappedFiles& mapped) {
  const Cutter cutter{division.stage.place == 0, mapped};
  if (division.vocabulary.size() > 0) cutter.rows(weights.modules, &Naming::head, {division.vocabulary});
  for (std::size_t i = 0; i < division.layers.size(); ++i) {
    const LayerDivision& part = division.layers[i];
    WeightSet& modules = weights.layers[i].modules;
    if (part.heads.size() > 0) cut_attention(config, config.layers.at(i), part, cutter, modules);
    if (part.inner.size() > 0) cut_mlp(part.inner, cutter, modules);
  }
  return weights;
}

}  // namespace halfbyte::models
