// What a training changes: adapters beside a model's weights, or the weights.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/finetune.h>
#include <halfbyte/load_low_bit.h>

#include "convert/output/destination.h"
#include "models/training/optimizer.h"

namespace halfbyte::convert {

class Learned {
 public:
  virtual ~Learned() = default;
  // What the optimizer updates, each with its gradients after a pass.
  virtual std::vector<training::NamedTensor> parameters() const = 0;
  // What else decides the result, for who goes on.
  virtual nlohmann::json identity() const = 0;
  // The passes of a step see the parameters as they are now.
  virtual void begin_step() {}
  // Their gradients are all there.
  virtual void end_backward() {}
  // Runs a pass that sees what is learnt. `pass`: how manieth of the training; -1: one that is not learnt from.
  virtual double see(std::int64_t pass, const std::function<double()>& run) const = 0;
  // Passes draw at random, by their number.
  virtual bool draws() const { return false; }
  // All files of the result.
  virtual void write(const Destination& destination) const = 0;
};

// Errors: as finetune().
std::unique_ptr<Learned> learned_adapters(const Model& model, const fs::path& checkpoint,
                                          const FinetuneOptions& options);
std::unique_ptr<Learned> learned_weights(const Model& model, const fs::path& checkpoint,
                                         const FinetuneOptions& options);

}  // namespace halfbyte::convert
