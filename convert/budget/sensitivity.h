// What a model loses by each way to store each of its tensors. Made by convert/calibrate's library, which needs
// LibTorch; what only plans needs this interface alone.
#pragma once

#include <span>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <halfbyte/convert.h>

#include "convert/plan.h"

namespace halfbyte::convert {

// Ways to store one tensor, none of which keeps it.
struct TensorWays {
  std::size_t tensor;  // index into Checkpoint::tensors
  std::vector<PlannedTensor> ways;
};

class Sensitivity {
 public:
  virtual ~Sensitivity() = default;

  // A loss for each way of each tensor: KL divergence a token, in nats, where nothing else is quantised. Errors:
  // kUnsupported where the model cannot be run; kInterrupted; kIo, kNoResources.
  virtual std::vector<std::vector<double>> losses(const files::Checkpoint& source, std::span<const TensorWays> tensors,
                                                  const QuantizeOptions& options) = 0;
  // Of what it was measured, for the result's manifest.
  virtual nlohmann::json record() const = 0;
  // The same for people: "2048 tokens of the calibration text".
  virtual Text basis() const = 0;
};

}  // namespace halfbyte::convert
