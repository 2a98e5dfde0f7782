// What a model's predictions of a text cost, with gradients.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <halfbyte/causal_lm.h>

namespace halfbyte::training {

// Of labels: a token that is not scored.
inline constexpr std::int64_t kUnscored = -100;

// The sum of the cross entropies of `labels` after `tokens`, natural logarithms, in float32; gradients flow to whatever
// wants them on the way: adapters (Lora::Scope), parameters. Each layer is run a second time when its gradients are
// wanted, and so are blocks of logits: what is kept is each layer's input. Shapes: (tokens), int64; labels as long.
// Errors: as CausalLM::step, kInterrupted of a PassWatch.
at::Tensor summed_loss(const models::CausalLM& model, const at::Tensor& tokens, const at::Tensor& labels);

}  // namespace halfbyte::training
