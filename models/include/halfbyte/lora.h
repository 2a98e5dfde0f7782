// Low-rank adapters beside a loaded model's products, whose own weights stay as they are: packed, dense, frozen.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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
// peft's does, uniform within 1 / sqrt(in_features), B as zeros. Source: Hu et al. 2021. Weight-decomposed, each row of
// W + scaling * B A is divided by its norm, through which no gradients flow, and multiplied by its magnitude, which
// begins as the norm of W's row. Source: Liu et al. 2024 (DoRA). Dropout is of what A is given alone.
class Lora {
 public:
  struct Adapter {
    std::string name;                    // of the Linear
    at::Tensor a;                        // float32 (rank, in_features), wants gradients
    at::Tensor b;                        // float32 (out_features, rank), wants gradients
    at::Tensor magnitude = {};           // float32 (out_features), wants gradients; undefined: no DoRA
    std::optional<double> scaling = {};  // nothing: by the options and its rank
    double weight = 1;                   // what it adds is multiplied by it
  };

  // The model must outlive it. Errors: kInvalidArgument for a rank, a dropout, a pattern that names no Linear.
  Lora(const models::CausalLM& model, const LoraOptions& options);
  // Of adapters that there are, each beside the Linear of its name, which may have several: what they add is added up.
  // Errors: kInvalidArgument for a name that the model has not, or tensors that do not fit.
  Lora(const models::CausalLM& model, const LoraOptions& options, std::vector<Adapter> adapters);
  ~Lora();
  Lora(const Lora&) = delete;
  Lora& operator=(const Lora&) = delete;

  const LoraOptions& options() const noexcept { return options_; }
  double scaling() const noexcept { return scaling_; }  // of the options
  const std::vector<Adapter>& adapters() const noexcept { return adapters_; }
  std::vector<at::Tensor> parameters() const;  // all A, B and magnitudes
  // The same by the name of their Linear with ".lora_A", ".lora_B" or ".lora_magnitude_vector" behind it.
  std::vector<std::pair<std::string, at::Tensor>> named_parameters() const;
  // Computes the norms of DoRA's rows anew, from blocks of W's rows: after A or B has changed.
  void refresh();

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
  void put(Adapter adapter, const models::Linear& linear);
  at::Tensor dropped(std::size_t index, const at::Tensor& input, std::int64_t step) const;
  at::Tensor turned(std::size_t index, const at::Tensor& input, const at::Tensor& product) const;
  at::Tensor adapted(const models::Linear& linear, const at::Tensor& input, const at::Tensor& result,
                     std::int64_t step) const;

  LoraOptions options_;
  double scaling_;
  std::vector<Adapter> adapters_;
  std::vector<const models::Linear*> linears_;  // of each adapter
  std::vector<at::Tensor> norms_;               // likewise, float32 (out_features); undefined without a magnitude
  std::map<const models::Linear*, std::vector<std::size_t>> by_linear_;
};

}  // namespace halfbyte
