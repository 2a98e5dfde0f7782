// What a checkpoint computes in float32 of some tokens, the same each time. Shape: (2, 30, vocab_size), float32.
#pragma once

#include <filesystem>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

namespace halfbyte::tests {

inline at::Tensor logits_of(const std::filesystem::path& directory) {
  const c10::InferenceMode guard;
  const at::Tensor ids = at::arange(60, at::kLong).mul(37).remainder(300).view({2, 30});
  return load_low_bit(directory, {.dtype = DtypePolicy::float32()}).module().forward(ids).to(at::kFloat);
}

}  // namespace halfbyte::tests
