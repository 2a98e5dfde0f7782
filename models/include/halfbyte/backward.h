// What a model's predictions of sequences cost, and the gradients of that, for loops of a host's own.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/sequence.h>

namespace halfbyte::training {

struct BackwardOptions {
  double scale = 1;  // of the gradients
  // Layers are run a second time for their gradients, so that of each its input alone is kept meanwhile; else all that
  // they computed is.
  bool recomputes = true;
};

// The sum of the cross entropies of all scored labels, natural logarithms, in float32; its gradients are added to those
// of what wants them on the way: adapters (Lora::Scope), parameters. Logits exist for some tokens at a time. Sequences
// become rows of one pass. Errors: kInvalidArgument for sequences that are none; kInterrupted of a PassWatch, before
// which some gradients may have been added; as CausalLM::step.
double backward(const models::CausalLM& model, std::span<const Sequence* const> sequences,
                const BackwardOptions& options = {});

// The same sum without gradients.
double summed_loss(const models::CausalLM& model, std::span<const Sequence* const> sequences);

}  // namespace halfbyte::training
