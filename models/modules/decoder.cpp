#include "models/modules/decoder.h"

#include <algorithm>
#include <array>

#include <ATen/ops/embedding.h>
#include <ATen/ops/scalar_tensor.h>

#include "models/cpu/forward.h"
#include "models/modules/children.h"
#include "models/modules/gated_delta.h"
#include "models/modules/latent_attention.h"
#include "models/modules/module_path.h"
#include "models/modules/pass_watch.h"
#include "models/modules/short_convolution.h"
#include "quant/operators/translate.h"

namespace halfbyte::models {
namespace {

using MakeMixer = std::shared_ptr<Mixer> (*)(const WeightSet& weights, const ModelConfig& config,
                                             const Compute& compute, std::int64_t layer);

std::shared_ptr<Mixer> make_attention(const WeightSet& weights, const ModelConfig& config, const Compute& compute,
                                      std::int64_t layer) {
  return std::make_shared<Attention>(weights, config, compute, layer);
}

std::shared_ptr<Mixer> make_convolution(const WeightSet& weights, const ModelConfig& config, const Compute& compute,
                                        std::int64_t layer) {
  return std::make_shared<ShortConvolution>(weights, config, compute, layer);
}

std::shared_ptr<Mixer> make_delta(const WeightSet& weights, const ModelConfig& config, const Compute& compute,
                                  std::int64_t layer) {
  return std::make_shared<GatedDelta>(weights, config, compute, layer);
}

std::shared_ptr<Mixer> make_latent(const WeightSet& weights, const ModelConfig& config, const Compute& compute,
                                   std::int64_t layer) {
  return std::make_shared<LatentAttention>(weights, config, compute, layer);
}

struct MixerRow {
  MakeMixer make;
  ModuleName path;
};
// Indexed by MixerKind.
constexpr std::array<MixerRow, 4> kMixers = {{{make_attention, &Naming::attention},
                                               {make_convolution, &Naming::convolution},
                                               {make_delta, &Naming::delta},
                                               {make_latent, &Naming::attention}}};

std::vector<std::int64_t> windows_of(const ModelConfig& config) {
  std::vector<std::int64_t> out;
  for (const LayerConfig& layer : config.layers) {
    if (std::ranges::find(out, layer.window) == out.end()) out.push_back(layer.window);
  }
  return out;
}

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
  const MixerRow& mixer = kMixers.at(static_cast<std::size_t>(layer.mixer));
  mixer_ = mixer.make(weights.modules, config, compute, index);
  register_at(*this, names.*mixer.path, mixer_);
  attention_ = dynamic_cast<const Attention*>(mixer_.get());
  attention_output_norm_ = norm(&Naming::attention_output_norm);
  mlp_norm_ = norm(&Naming::mlp_norm);
  feed_forward_ = make_feed_forward(weights, config, compute);
  register_at(*this, layer.has_experts ? names.moe : names.mlp, feed_forward_);
  mlp_output_norm_ = norm(&Naming::mlp_output_norm);
}

at::Tensor DecoderLayer::forward(const at::Tensor& input, Session& session, const Pass& pass) const {
  const auto normalised = [](const at::Tensor& x, const std::shared_ptr<Norm>& norm) {
    return norm ? norm->forward(x) : x;
  };
  const auto joined = [&](const at::Tensor& before, const at::Tensor& x, const at::Tensor& result,
                          const std::shared_ptr<Norm>& norm) {
    const at::Tensor& base = is_residual_normalised_ ? x : before;
    const at::Tensor added = normalised(result, norm);
    return base + (residual_scale_ == 1.0 ? added : added * residual_scale_);
  };
  const at::Tensor x = normalised(input, input_norm_);
  const at::Tensor middle = joined(input, x, mixer_->forward(x, session, pass), attention_output_norm_);
  const at::Tensor y = is_parallel_ ? x : normalised(middle, mlp_norm_);
  return joined(middle, y, feed_forward_->forward(y), mlp_output_norm_);
}

Embedding::Embedding(at::Tensor weight, double scale, const Compute& compute) : compute_(compute), scale_(scale) {
  weight_ = register_parameter("weight", std::move(weight), /*requires_grad=*/false);
}

at::Tensor Embedding::forward(const at::Tensor& tokens) const {
  const at::Tensor rows = compute_.as_stream(at::embedding(weight_, tokens));
  if (scale_ == 1.0) return rows;
  // A tensor, not a number: the original rounds it to the stream's dtype.
  return rows * at::scalar_tensor(scale_, rows.options());
}

Decoder::Decoder(torch::nn::Module& root, const ModelWeights& weights, const ModelConfig& config,
                 const Compute& compute)
    : compute_(compute), path_(config.naming->layers), windows_(windows_of(config)) {
  const Naming& names = *config.naming;
  embedding_ =
      std::make_shared<Embedding>(*weights.modules.parameter(&Naming::embedding), config.embedding_scale, compute);
  register_at(root, names.embedding, embedding_);
  for (std::size_t i = 0; i < config.ropes.size(); ++i) {
    const auto rotary = std::make_shared<Rotary>(config.ropes[i], compute, weights.rotary_buffer_dtypes.at(i));
    const std::string& name = config.ropes[i].name;
    register_at(root, std::string(names.rotary) + (name.empty() ? "" : "." + name), rotary);
    rotaries_.push_back(rotary);
  }
  for (const LayerWeights& layer : weights.layers) {
    const auto index = static_cast<std::int64_t>(layers_.size());
    layers_.push_back(std::make_shared<DecoderLayer>(layer, config, compute, index));
    register_at(root, std::string(names.layers) + "." + std::to_string(index), layers_.back());
  }
  norm_ = add_norm(root, weights.modules, &Naming::final_norm, config, compute);
}

at::Tensor Decoder::forward(const at::Tensor& tokens, Session& session, std::int64_t first_row) const {
  if (std::optional<at::Tensor> fused = cpu::forward(*this, tokens, session, first_row)) return *std::move(fused);
  const Pass pass = make_pass(session, first_row, tokens.size(0), tokens.size(1));
  at::Tensor x = embedding_->forward(tokens);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    x = translated([&] { return path_ + "." + std::to_string(layer) + ", given " + describe(x); },
                   [&] { return layers_[layer]->forward(x, session, pass); });
    PassWatch::layer_done(static_cast<std::int64_t>(layer) + 1, static_cast<std::int64_t>(layers_.size()));
  }
  return norm_ ? norm_->forward(x) : x;
}

Pass Decoder::make_pass(const Session& session, std::int64_t first_row, std::int64_t rows, std::int64_t tokens) const {
  return models::make_pass(session, first_row, rows, tokens, windows_);
}

Session Decoder::make_session(std::int64_t batch, std::int64_t capacity, at::Device device) const {
  std::vector<std::unique_ptr<LayerState>> states;
  for (const auto& layer : layers_) states.push_back(layer->mixer().make_state(batch, capacity, device));
  return Session(batch, capacity, std::move(states), rotaries_, device);
}

}  // namespace halfbyte::models
