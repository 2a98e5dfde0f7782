#include "models/modules/decoder.h"

#include <torch/nn/modules/container/modulelist.h>

#include <ATen/ops/embedding.h>
#include <ATen/ops/silu.h>

namespace halfbyte::models {

Mlp::Mlp(MlpWeights weights, const Compute& compute) : compute_(compute) {
  gate_proj_ = register_module("gate_proj", make_linear(std::move(weights.gate), compute));
  up_proj_ = register_module("up_proj", make_linear(std::move(weights.up), compute));
  down_proj_ = register_module("down_proj", make_linear(std::move(weights.down), compute));
}

at::Tensor Mlp::forward(const at::Tensor& input) const {
  const at::Tensor x = compute_.as_operand(input);
  return down_proj_->forward(at::silu(gate_proj_->forward(x)) * up_proj_->forward(x));
}

DecoderLayer::DecoderLayer(LayerWeights weights, const ModelConfig& config, const Compute& compute) {
  const auto norm = [&](at::Tensor weight) {
    return std::make_shared<RmsNorm>(std::move(weight), config.rms_norm_eps, compute);
  };
  input_layernorm_ = register_module("input_layernorm", norm(std::move(weights.input_norm)));
  self_attn_ = register_module("self_attn", std::make_shared<Attention>(std::move(weights.attention), config, compute));
  post_attention_layernorm_ = register_module("post_attention_layernorm", norm(std::move(weights.post_attention_norm)));
  mlp_ = register_module("mlp", std::make_shared<Mlp>(std::move(weights.mlp), compute));
}

at::Tensor DecoderLayer::forward(const at::Tensor& input, Session& session, const Pass& pass,
                                 std::int64_t layer) const {
  const at::Tensor x = input + self_attn_->forward(input_layernorm_->forward(input), session, pass, layer);
  return x + mlp_->forward(post_attention_layernorm_->forward(x));
}

Embedding::Embedding(at::Tensor weight, const Compute& compute) : compute_(compute) {
  weight_ = register_parameter("weight", std::move(weight), /*requires_grad=*/false);
}

at::Tensor Embedding::forward(const at::Tensor& tokens) const {
  return compute_.as_stream(at::embedding(weight_, tokens));
}

Decoder::Decoder(at::Tensor embedding, std::vector<LayerWeights> layers, at::Tensor norm, const ModelConfig& config,
                 const Compute& compute, at::ScalarType rotary_buffer_dtype) {
  embed_tokens_ = register_module("embed_tokens", std::make_shared<Embedding>(std::move(embedding), compute));
  rotary_emb_ = register_module("rotary_emb", std::make_shared<Rotary>(config.rope, compute, rotary_buffer_dtype));
  auto list = register_module("layers", std::make_shared<torch::nn::ModuleListImpl>());
  for (LayerWeights& weights : layers) {
    layers_.push_back(std::make_shared<DecoderLayer>(std::move(weights), config, compute));
    list->push_back(layers_.back());
  }
  norm_ = register_module("norm", std::make_shared<RmsNorm>(std::move(norm), config.rms_norm_eps, compute));
}

at::Tensor Decoder::forward(const at::Tensor& tokens, Session& session, std::int64_t first_row) const {
  const Pass pass = make_pass(session, first_row, tokens.size(0), tokens.size(1));
  at::Tensor x = embed_tokens_->forward(tokens);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    x = layers_[layer]->forward(x, session, pass, static_cast<std::int64_t>(layer));
  }
  session.advance(first_row, pass.rows, pass.tokens);
  return norm_->forward(x);
}

}  // namespace halfbyte::models
