// Which updates a training run may ask for, and with what. For whoever has no LibTorch at hand, too.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace halfbyte::training {

// kAdamW8bit: AdamW with its moments in 8 bits, a scale for 256 (adamw8bit_block.h). kAdafactor: second moments of
// matrices as a row's and a column's, no first ones.
enum class OptimizerKind { kAdamW, kAdamW8bit, kSgd, kAdafactor };

std::span<const OptimizerKind> optimizer_kinds() noexcept;  // all of them
std::string_view name(OptimizerKind kind) noexcept;         // "adamw8bit"

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // of AdamW, in 8 bits or not
  double momentum = 0.9;                              // of SGD
  double weight_decay = 0;  // SGD adds it to the gradients (L2), the others shrink parameters by rate * weight_decay
  std::uint64_t seed = 0;   // of stochastic rounding
};

}  // namespace halfbyte::training
