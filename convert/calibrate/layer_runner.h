// A model whose layers are run one after another, of which one is in memory at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <halfbyte/load_options.h>

#include "loader/files/checkpoint.h"
#include "models/modules/decoder.h"

namespace halfbyte::convert::calibrate {

// Token ids of sequences of one length, one at least. Shape: (sequences, tokens).
at::Tensor tensor_of(std::span<const std::vector<std::int64_t>> sequences);

class LayerRunner {
 public:
  // Errors: kUnsupported for a family that cannot be run; kCorrupt where tensors are missing. `source` must outlive it.
  LayerRunner(const files::Checkpoint& source, const DtypePolicy& policy);

  const models::ModelConfig& config() const noexcept { return config_; }
  models::Embedding embedding() const;
  // Shape: token ids (windows, tokens) -> (windows, tokens, hidden_size), float32.
  at::Tensor embed(const at::Tensor& tokens) const;

  // Puts this layer in the place of the one before.
  void load(std::int64_t layer);
  void unload();
  // Those of the layer, by the names that the checkpoint has for them.
  const std::vector<models::DenseLinear*>& linears() const noexcept { return linears_; }
  // Precondition: it is one of them.
  const models::DenseLinear& linear(const std::string& path) const;
  // Shape: (windows, tokens, hidden_size), kept.
  at::Tensor forward(const at::Tensor& input) const;

 private:
  models::Session session() const;  // of one window

  const files::Checkpoint& source_;
  LoadOptions options_;
  models::Compute compute_;
  models::ModelConfig config_;
  models::Session::Ropes ropes_;        // Rotary modules
  std::vector<models::Reach> reaches_;  // of the layers
  std::int64_t layer_ = -1;
  std::shared_ptr<models::DecoderLayer> module_;
  std::vector<models::DenseLinear*> linears_;
};

}  // namespace halfbyte::convert::calibrate
