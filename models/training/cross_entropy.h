// Cross entropy of a block of logits, of which no second copy is made.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/architectures/model_config.h"

namespace halfbyte::training {

// The sum of the cross entropies of `labels` after the head's `products`, which become its gradients times `scale`.
// Shapes: products (rows, vocab_size), float32, contiguous; labels (rows), int64, all of them in the vocabulary.
double cross_entropy_(at::Tensor& products, const at::Tensor& labels, const models::ModelConfig& config, double scale);

}  // namespace halfbyte::training
