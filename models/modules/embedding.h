// Rows of a matrix by token ids.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include <torch/nn/module.h>

#include "models/modules/compute.h"
#include "models/modules/linear.h"

namespace halfbyte::models {

// Of a matrix that is dense, a parameter, or packed: then only the rows that are asked for are dequantised, and the
// matrix is no parameter, as LowBitLinear's is none.
class Embedding : public torch::nn::Module {
 public:
  // `weights`: without a bias. Their policy says what packed rows become where the model fixes no dtype.
  Embedding(LinearWeights weights, double scale, const Compute& compute);
  // Shape: token ids (rows, tokens) -> (rows, tokens, hidden_size) in the stream's dtype.
  at::Tensor forward(const at::Tensor& tokens) const;
  const std::variant<at::Tensor, LowBitTensor>& weight() const noexcept { return weight_; }
  const LowBitTensor* packed() const noexcept { return std::get_if<LowBitTensor>(&weight_); }  // null: dense
  std::int64_t vocab_size() const;
  std::int64_t hidden_size() const;
  double scale() const noexcept { return scale_; }

  // As LowBitLinear's: a device moves a packed matrix, no dtype changes it.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 private:
  at::Tensor rows(const at::Tensor& tokens) const;

  Compute compute_;
  double scale_;
  std::optional<at::ScalarType> row_dtype_;  // of packed rows; nothing: the matrix's before quantisation
  std::variant<at::Tensor, LowBitTensor> weight_;
};

}  // namespace halfbyte::models
