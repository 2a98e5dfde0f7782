// Tokens mixed by a gated convolution over the last few, each value by itself. What it keeps does not grow.
#pragma once

#include <memory>
#include <vector>

#include "models/modules/mixer.h"
#include "models/modules/model_weights.h"

namespace halfbyte::models {

// The convolution's inputs of a row's last tokens: as many as it sees beside its own.
class ConvolutionState final : public LayerState {
 public:
  ConvolutionState(std::int64_t batch, std::int64_t tokens, std::int64_t size, at::Device device);

  // Shape: (rows, tokens, size), float32.
  at::Tensor before(std::int64_t first_row, std::int64_t rows) const { return kept_.narrow(0, first_row, rows); }
  // What before() is once the pass is committed.
  void keep(std::int64_t first_row, const at::Tensor& last);

  bool can_rewind() const noexcept override { return false; }
  void commit(std::int64_t row, std::int64_t tokens) override;
  void reset(std::int64_t row) override;
  std::vector<at::Tensor> save(std::int64_t row) const override;
  void restore(std::int64_t row, const std::vector<at::Tensor>& saved) override;
  void grow(std::int64_t, std::int64_t) override {}

 private:
  at::Tensor kept_, fresh_;
};

// output(c * convolution(b * x)) of the three parts b, c, x that the input's projection gives.
class ShortConvolution : public Mixer {
 public:
  ShortConvolution(const WeightSet& weights, const ModelConfig& config, const Compute& compute, std::int64_t layer);
  at::Tensor forward(const at::Tensor& input, Session& session, const Pass& pass) const override;
  std::unique_ptr<LayerState> make_state(std::int64_t batch, std::int64_t capacity, at::Device device) const override;

 private:
  // Shape: (rows, length - 1 + tokens, size) -> (rows, tokens, size), float32.
  at::Tensor convolved(const at::Tensor& x, std::int64_t tokens) const;

  Compute compute_;
  std::int64_t layer_;
  std::vector<std::shared_ptr<Linear>> inputs_;  // one
  std::shared_ptr<Linear> output_;
  at::Tensor kernel_;  // (size, 1, length)
  at::Tensor bias_;    // undefined: none
};

}  // namespace halfbyte::models
