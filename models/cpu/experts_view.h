// A layer's experts as models/cpu takes them. Needs no LibTorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <halfbyte/linear.h>

#include "models/architectures/model_config.h"

namespace halfbyte::models::cpu {

// Values one after another, of any alignment.
struct FusedValues {
  const std::byte* data = nullptr;  // null: there are none
  Dtype dtype = Dtype::kFloat32;    // float32, float16 or bfloat16
  std::int64_t count = 0;
};

// Of an MLP: what multiplies its input (gate and up, or one of both), and what leads out of it. Without rows, inputs
// and outputs.
struct ExpertProducts {
  std::array<quant::Product, 2> inputs;
  std::size_t count = 0;
  quant::Product down;
};

// What gives a product, or values, says nothing or false where they do not lie as kernels read them.
class ExpertsView {
 public:
  virtual ~ExpertsView() = default;
  virtual const MoeConfig& config() const noexcept = 0;
  virtual Activation activation() const noexcept = 0;
  // Of those that are here: the number of the first, and how many.
  virtual std::int64_t first() const noexcept = 0;
  virtual std::size_t count() const noexcept = 0;
  virtual bool expert(std::size_t index, ExpertProducts& out) const = 0;
  virtual std::optional<quant::Product> router() const = 0;   // of float32 input
  virtual std::optional<FusedValues> correction() const = 0;  // of each expert, for the choice alone
  // The MLP that every token takes beside them, and how much of it, from float32 input.
  virtual bool has_shared() const noexcept = 0;
  virtual bool shared(ExpertProducts& out) const = 0;
  virtual bool has_shared_router() const noexcept = 0;
  virtual std::optional<quant::Product> shared_router() const = 0;
};

}  // namespace halfbyte::models::cpu
