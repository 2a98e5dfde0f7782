// Codes that were chosen by what a model's layers are given, for convert_tensors to write. Made by convert/calibrate,
// which needs LibTorch; what only quantises needs this interface alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <halfbyte/convert.h>

#include "convert/plan.h"

namespace halfbyte::convert {

class Calibrator {
 public:
  virtual ~Calibrator() = default;

  // What decides its codes, for the result's manifest and for knowing a conversion again.
  virtual nlohmann::json record() const = 0;
  // Chooses the codes of all that it has, in memory. Before anything below. Errors: kUnsupported where the model cannot
  // be run; kInterrupted; kIo, kNoResources.
  virtual void run(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options) = 0;
  // Whether it has codes of this tensor of the plan; else the tensor is quantised from its weights alone.
  virtual bool has(std::size_t tensor) const noexcept = 0;
  // As quantize_groups gives them: groups [first, first + group_stats.size()). Any threads. Precondition: has(tensor).
  virtual void read(std::size_t tensor, std::uint64_t first, quant::PackedRows out,
                    std::span<quant::ErrorStats> group_stats) const = 0;
  // What a user should know of how the codes were chosen.
  virtual std::vector<Text> notes() const = 0;
};

}  // namespace halfbyte::convert
