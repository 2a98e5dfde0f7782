// The layers of a decoder-only transformer, and the stack of them.
#pragma once

#include <memory>
#include <vector>

#include "models/modules/attention.h"
#include "models/modules/rms_norm.h"
#include "models/modules/rotary.h"

namespace halfbyte::models {

struct MlpWeights {
  LinearWeights gate, up, down;
};

// down(silu(gate(x)) * up(x))
class Mlp : public torch::nn::Module {
 public:
  Mlp(MlpWeights weights, const Compute& compute);
  at::Tensor forward(const at::Tensor& input) const;

 private:
  Compute compute_;
  std::shared_ptr<Linear> gate_proj_, up_proj_, down_proj_;
};

struct LayerWeights {
  at::Tensor input_norm, post_attention_norm;
  AttentionWeights attention;
  MlpWeights mlp;
};

class DecoderLayer : public torch::nn::Module {
 public:
  DecoderLayer(LayerWeights weights, const ModelConfig& config, const Compute& compute);
  at::Tensor forward(const at::Tensor& input, Session& session, const Pass& pass, std::int64_t layer) const;

 private:
  std::shared_ptr<RmsNorm> input_layernorm_, post_attention_layernorm_;
  std::shared_ptr<Attention> self_attn_;
  std::shared_ptr<Mlp> mlp_;
};

class Embedding : public torch::nn::Module {
 public:
  Embedding(at::Tensor weight, const Compute& compute);
  // Shape: token ids (rows, tokens) -> (rows, tokens, hidden_size) in the stream's dtype.
  at::Tensor forward(const at::Tensor& tokens) const;

 private:
  Compute compute_;
  at::Tensor weight_;
};

// Embedding, layers, final norm: everything below the head. Child names are those of the checkpoint.
class Decoder : public torch::nn::Module {
 public:
  Decoder(at::Tensor embedding, std::vector<LayerWeights> layers, at::Tensor norm, const ModelConfig& config,
          const Compute& compute, at::ScalarType rotary_buffer_dtype);

  // Shape: (rows, tokens) -> (rows, tokens, hidden_size), normalised. Advances the session.
  at::Tensor forward(const at::Tensor& tokens, Session& session, std::int64_t first_row) const;
  const Rotary& rotary() const noexcept { return *rotary_emb_; }

 private:
  std::shared_ptr<Embedding> embed_tokens_;
  std::shared_ptr<Rotary> rotary_emb_;
  std::vector<std::shared_ptr<DecoderLayer>> layers_;
  std::shared_ptr<RmsNorm> norm_;
};

}  // namespace halfbyte::models
