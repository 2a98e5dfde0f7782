#include "models/modules/decoder.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/scalar_tensor.h>

#include "models/cpu/forward.h"
#include "models/modules/module_path.h"
#include "quant/operators/translate.h"

namespace halfbyte::models {

DecoderLayer::DecoderLayer(LayerWeights weights, const ModelConfig& config, const Compute& compute, std::int64_t index)
    : index_(index), is_residual_normalised_(config.is_residual_normalised) {
  const Naming& names = *config.naming;
  const auto norm = [&](std::string_view name, std::optional<at::Tensor> weight) -> std::shared_ptr<RmsNorm> {
    if (!weight) return nullptr;
    return register_module(std::string(name), std::make_shared<RmsNorm>(std::move(*weight), config, compute));
  };
  input_norm_ = norm(names.input_norm, std::move(weights.input_norm));
  attention_ = register_module(
      std::string(names.attention),
      std::make_shared<Attention>(std::move(weights.attention), config, compute, config.is_sliding(index)));
  attention_output_norm_ = norm(names.attention_output_norm, std::move(weights.attention_output_norm));
  mlp_norm_ = norm(names.mlp_norm, std::move(weights.mlp_norm));
  feed_forward_ = register_module(std::string(config.has_experts(index) ? names.moe : names.mlp),
                                  make_feed_forward(std::move(weights.feed_forward), config, compute));
  mlp_output_norm_ = norm(names.mlp_output_norm, std::move(weights.mlp_output_norm));
}

at::Tensor DecoderLayer::forward(const at::Tensor& input, Session& session, const Pass& pass) const {
  const auto joined = [&](const at::Tensor& before, const at::Tensor& normalised, at::Tensor result,
                          const std::shared_ptr<RmsNorm>& norm) {
    if (norm) result = norm->forward(result);
    return (is_residual_normalised_ ? normalised : before) + result;
  };
  const at::Tensor x = input_norm_->forward(input);
  const at::Tensor middle = joined(input, x, attention_->forward(x, session, pass, index_), attention_output_norm_);
  const at::Tensor y = mlp_norm_->forward(middle);
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

Decoder::Decoder(torch::nn::Module& root, at::Tensor embedding, std::vector<LayerWeights> layers,
                 std::optional<at::Tensor> norm, const ModelConfig& config, const Compute& compute,
                 at::ScalarType rotary_buffer_dtype)
    : compute_(compute), path_(config.naming->layers), sliding_window_(config.sliding_window) {
  const Naming& names = *config.naming;
  embedding_ = std::make_shared<Embedding>(std::move(embedding), config.embedding_scale, compute);
  register_at(root, names.embedding, embedding_);
  rotary_ = std::make_shared<Rotary>(config.rope, compute, rotary_buffer_dtype);
  register_at(root, names.rotary, rotary_);
  for (LayerWeights& weights : layers) {
    const auto index = static_cast<std::int64_t>(layers_.size());
    layers_.push_back(std::make_shared<DecoderLayer>(std::move(weights), config, compute, index));
    register_at(root, std::string(names.layers) + "." + std::to_string(index), layers_.back());
  }
  if (!norm) return;
  norm_ = std::make_shared<RmsNorm>(std::move(*norm), config, compute);
  register_at(root, names.final_norm, norm_);
}

at::Tensor Decoder::forward(const at::Tensor& tokens, Session& session, std::int64_t first_row) const {
  if (std::optional<at::Tensor> fused = cpu::forward(*this, tokens, session, first_row)) return *std::move(fused);
  const Pass pass = make_pass(session, first_row, tokens.size(0), tokens.size(1), sliding_window_);
  at::Tensor x = embedding_->forward(tokens);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    x = translated([&] { return path_ + "." + std::to_string(layer) + ", given " + describe(x); },
                   [&] { return layers_[layer]->forward(x, session, pass); });
  }
  session.advance(first_row, pass.rows, pass.tokens);
  return norm_ ? norm_->forward(x) : x;
}

}  // namespace halfbyte::models
