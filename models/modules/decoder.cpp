#include "models/modules/decoder.h"

#include <algorithm>
#include <array>

#include <ATen/ops/cat.h>

#include <halfbyte/error.h>

#include "models/cpu/module_forward.h"
#include "models/cpu/workspace.h"
#include "models/modules/absent_state.h"
#include "models/modules/children.h"
#include "models/modules/gated_delta.h"
#include "models/modules/latent_attention.h"
#include "models/modules/module_path.h"
#include "models/modules/short_convolution.h"
#include "models/parallel/summed.h"
#include "models/profile/recorder.h"
#include "models/sessions/pass_watch.h"
#include "quant/operators/translate.h"

namespace halfbyte::models {
namespace {

using MakeMixer = std::shared_ptr<Mixer> (*)(const WeightSet& weights, const ModelConfig& config,
                                             const Compute& compute, std::int64_t layer);

template <class Kind>
std::shared_ptr<Mixer> make(const WeightSet& weights, const ModelConfig& config, const Compute& compute,
                            std::int64_t layer) {
  return std::make_shared<Kind>(weights, config, compute, layer);
}

struct MixerRow {
  MakeMixer make;
  ModuleName path;
};
// Indexed by MixerKind.
constexpr std::array<MixerRow, 4> kMixers = {{{make<Attention>, &Naming::attention},
                                              {make<ShortConvolution>, &Naming::convolution},
                                              {make<GatedDelta>, &Naming::delta},
                                              {make<LatentAttention>, &Naming::attention}}};

}  // namespace

DecoderLayer::DecoderLayer(const LayerWeights& weights, const ModelConfig& config, const Compute& compute,
                           std::int64_t index)
    : is_parallel_(config.is_parallel),
      is_residual_normalised_(config.is_residual_normalised),
      residual_scale_(config.residual_scale) {
  const Naming& names = *config.naming;
  const LayerConfig& layer = config.layer(index);
  const auto norm = [&](ModuleName module) { return add_norm(*this, weights.modules, module, config, compute); };
  input_norm_ = norm(&Naming::input_norm);
  if (layer.is_attention_part) attention_group_ = compute.layer_group;
  if (layer.is_mlp_part && !layer.has_mlp_beside) mlp_group_ = compute.layer_group;
  const MixerRow& mixer = kMixers.at(static_cast<std::size_t>(layer.mixer));
  mixer_ = mixer.make(weights.modules, config, compute, index);
  register_at(*this, names.*mixer.path, mixer_);
  attention_ = dynamic_cast<const Attention*>(mixer_.get());
  attention_output_norm_ = norm(&Naming::attention_output_norm);
  if (!layer.has_mlp_beside) mlp_norm_ = norm(&Naming::mlp_norm);
  add_feed_forward(weights, config, compute, layer);
  mlp_output_norm_ = norm(&Naming::mlp_output_norm);
  if (config.layer_input_size > 0)
    layer_input_ = std::make_shared<LayerInput>(*this, weights.modules, config, compute, index);
  if (auto scale = weights.modules.parameter(&Naming::layer_scale))
    scale_ = register_parameter_at(*this, names.layer_scale, std::move(*scale));
}

void DecoderLayer::add_feed_forward(const LayerWeights& weights, const ModelConfig& config, const Compute& compute,
                                    const LayerConfig& layer) {
  if (layer.has_mlp_beside) {
    feed_forward_ = std::make_shared<MlpBesideExperts>(*this, weights, config, compute,
                                                       layer.is_mlp_part ? compute.layer_group : nullptr);
    return;
  }
  feed_forward_ = make_feed_forward(weights, config, compute);
  register_at(*this, layer.has_experts ? config.naming->moe : config.naming->mlp, feed_forward_);
}

at::Tensor DecoderLayer::forward(const at::Tensor& input, const Pass& pass) const {
  const auto normalised = [](const at::Tensor& x, const std::shared_ptr<Norm>& norm) {
    return norm ? norm->forward(x) : x;
  };
  const auto joined = [&](const at::Tensor& before, const at::Tensor& x, const at::Tensor& result,
                          const std::shared_ptr<Norm>& norm) {
    const at::Tensor& base = is_residual_normalised_ ? x : before;
    const at::Tensor added = normalised(result, norm);
    return base + (residual_scale_ == 1.0 ? added : added * residual_scale_);
  };
  const auto whole = [](const at::Tensor& part, const std::shared_ptr<Group>& group) {
    return group ? summed(*group, part) : part;
  };
  const at::Tensor x = normalised(input, input_norm_);
  const at::Tensor mixed = whole(mixer_->forward(x, pass), attention_group_);
  const at::Tensor middle = joined(input, x, mixed, attention_output_norm_);
  const at::Tensor y = is_parallel_ ? x : normalised(middle, mlp_norm_);
  const at::Tensor fed = whole(feed_forward_->forward(y), mlp_group_);
  return completed(joined(middle, y, fed, mlp_output_norm_), pass);
}

at::Tensor DecoderLayer::completed(const at::Tensor& x, const Pass& pass) const {
  const at::Tensor out = layer_input_ ? layer_input_->forward(x, pass) : x;
  return scale_.defined() ? out * scale_.to(out.scalar_type()) : out;
}

Decoder::Decoder(torch::nn::Module& root, const ModelWeights& weights, const ModelConfig& config,
                 const Compute& compute)
    : compute_(compute),
      path_(config.naming->layers),
      reaches_(reaches_of(config)),
      hidden_size_(config.hidden_size),
      all_layers_(config.num_hidden_layers),
      first_layer_(config.first_layer) {
  const Naming& names = *config.naming;
  if (config.has_embedding()) {
    embedding_ =
        std::make_shared<Embedding>(weights.modules.linear(&Naming::embedding), config.embedding_scale, compute);
    register_at(root, names.embedding, embedding_);
  }
  if (config.layer_input_size > 0)
    layer_inputs_ = std::make_shared<LayerInputs>(root, weights.modules, config, compute);
  for (std::size_t i = 0; i < config.ropes.size(); ++i) {
    const auto rotary = std::make_shared<Rotary>(config.ropes[i], compute, weights.rotary_buffer_dtypes.at(i));
    const std::string& name = config.ropes[i].name;
    register_at(root, std::string(names.rotary) + (name.empty() ? "" : "." + name), rotary);
    ropes_.push_back(rotary);
  }
  for (std::int64_t index = 0; index < all_layers_; ++index) {
    absent_.push_back(config.has_layer(index) ? nullptr : AbsentState::of(config.layer(index)));
    if (!config.has_layer(index)) continue;
    const LayerWeights& layer = weights.layers.at(static_cast<std::size_t>(index));
    layers_.push_back(std::make_shared<DecoderLayer>(layer, config, compute, index));
    register_at(root, std::string(names.layers) + "." + std::to_string(index), layers_.back());
  }
  norm_ = add_norm(root, weights.modules, &Naming::final_norm, config, compute);
  workspaces_ = std::make_unique<cpu::Workspaces>();
}

Decoder::~Decoder() = default;

std::vector<EqualRows> equal_rows(std::span<const StepRow> rows) {
  std::vector<EqualRows> out;
  std::int64_t first = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows[i].tokens != out.back().tokens) out.push_back({i, i, first, rows[i].tokens});
    out.back().end = i + 1;
    first += rows[i].tokens;
  }
  return out;
}

std::vector<Session*> sessions_of(std::span<const StepRow> rows, const EqualRows& part) {
  std::vector<Session*> out;
  for (std::size_t i = part.begin; i < part.end; ++i) out.push_back(rows[i].session);
  return out;
}

at::Tensor Decoder::forward(const at::Tensor& tokens, std::span<const StepRow> rows, const at::Tensor& input) const {
  if (std::optional<at::Tensor> fused = cpu::forward(*this, tokens, rows, input)) return *std::move(fused);
  std::vector<at::Tensor> results;
  for (const EqualRows& part : equal_rows(rows)) {
    const auto count = static_cast<std::int64_t>(part.end - part.begin);
    const auto of_part = [&](const at::Tensor& x) {
      return x.narrow(0, part.first, count * part.tokens).unflatten(0, {count, part.tokens});
    };
    const at::Tensor given = input.defined() ? of_part(input) : input;
    results.push_back(by_modules(of_part(tokens), sessions_of(rows, part), given).flatten(0, 1));
  }
  return results.size() == 1 ? results[0] : at::cat(results);
}

at::Tensor Decoder::by_modules(const at::Tensor& tokens, std::vector<Session*> sessions,
                               const at::Tensor& input) const {
  auto [x, pass] = [&] {
    const WorkScope work(WorkKind::kModules);
    return begin(tokens, std::move(sessions), input);
  }();
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const std::int64_t index = first_layer_ + static_cast<std::int64_t>(layer);
    const auto scope = WorkScope::layer(index);
    const WorkScope work(WorkKind::kModules);
    x = translated([&] { return path_ + "." + std::to_string(index) + ", given " + describe(x); },
                   [&] { return layers_[layer]->forward(x, pass); });
    PassWatch::layer_done(static_cast<std::int64_t>(layer) + 1, static_cast<std::int64_t>(layers_.size()));
  }
  const WorkScope work(WorkKind::kModules);
  return norm_ ? norm_->forward(x) : x;
}

Decoder::Begun Decoder::begin(const at::Tensor& tokens, std::vector<Session*> sessions, const at::Tensor& input) const {
  const at::Tensor embedded = embedding_ ? embedding_->forward(tokens) : at::Tensor();
  Begun out{input.defined() ? input : embedded, make_pass(std::move(sessions), tokens.size(1), tokens.device())};
  if (layer_inputs_) out.pass.layer_inputs = layer_inputs_->forward(tokens, embedded);
  return out;
}

void Decoder::check_all_layers() const {
  if (static_cast<std::int64_t>(layers_.size()) == all_layers_) return;
  throw Error(ErrorCode::kUnsupported, "this rank has " + std::to_string(layers_.size()) + " of the model's " +
                                           std::to_string(all_layers_) +
                                           " layers; what runs them one by one needs all");
}

Pass Decoder::make_pass(std::vector<Session*> sessions, std::int64_t tokens, at::Device device) const {
  return models::make_pass(std::move(sessions), tokens, reaches_, device);
}

Session Decoder::make_session(at::Device device) const {
  std::vector<std::unique_ptr<LayerState>> states;
  for (const auto& one : absent_) states.push_back(one ? one->fork() : nullptr);
  for (std::size_t i = 0; i < layers_.size(); ++i)
    states[static_cast<std::size_t>(first_layer_) + i] = layers_[i]->mixer().make_state(device);
  return Session(std::move(states), ropes_, device.is_cpu());
}

}  // namespace halfbyte::models
