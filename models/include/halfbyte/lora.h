// Low-rank adapters beside a loaded model's products, whose own weights stay as they are: packed, dense, frozen.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/lora_options.h>

namespace halfbyte {

namespace models {
class CausalLM;
class Linear;
class Tap;
}  // namespace models

// y = x W^T + b + (x A^T) B^T * scaling for each Linear that is named, in float32 beside W's product. A begins as
// peft's does, uniform within 1 / sqrt(in_features), B as zeros. Source: Hu et al. 2021.
class Lora {
 public:
  struct Adapter {
    std::string name;  // of the Linear
    at::Tensor a;      // float32 (rank, in_features), wants gradients
    at::Tensor b;      // float32 (out_features, rank), wants gradients
  };

  // The model must outlive it. Errors: kInvalidArgument for a rank, a dropout, a pattern that names no Linear.
  Lora(const models::CausalLM& model, const LoraOptions& options);
  // Of adapters that there are, each beside the Linear of its name. Errors: kInvalidArgument for a name that the model
  // has not, or matrices that do not fit.
  Lora(const models::CausalLM& model, const LoraOptions& options, std::vector<Adapter> adapters);
  ~Lora();
  Lora(const Lora&) = delete;
  Lora& operator=(const Lora&) = delete;

  const LoraOptions& options() const noexcept { return options_; }
  double scaling() const noexcept { return scaling_; }
  const std::vector<Adapter>& adapters() const noexcept { return adapters_; }
  std::vector<at::Tensor> parameters() const;  // all A and B

  // While one lives, products of this thread's passes have the adapters. `step`: what dropout is drawn by, together
  // with the seed; negative: none.
  class Scope {
   public:
    explicit Scope(const Lora& lora, std::int64_t step = -1);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::unique_ptr<models::Tap> tap_;
  };

 private:
  at::Tensor adapted(std::size_t index, const at::Tensor& input, const at::Tensor& result, std::int64_t step) const;

  LoraOptions options_;
  double scaling_;
  std::vector<Adapter> adapters_;
  std::map<const models::Linear*, std::size_t> by_linear_;
};

}  // namespace halfbyte
