// How much of a calibration is in memory at once: the sums of second moments for which the limit leaves room.
#pragma once

#include <cstdint>
#include <optional>

#include "convert/calibrate/packed_matrix.h"
#include "convert/calibrate/states.h"
#include "models/architectures/model_config.h"

namespace halfbyte::convert::calibrate {

// The matrices that a tensor consists of: one, or as many as a layer has experts.
struct MatrixStack {
  std::uint64_t count;
  MatrixSize size;  // of each
};
MatrixStack stack_of(const files::Checkpoint& source, const PlannedTensor& planned);

// Units: bytes.
struct CalibrationMemory {
  std::uint64_t moments = 0;  // of sums that are gathered in one pass
};

struct LayersInMemory {
  StatesShape states;
  std::uint64_t weight_bytes;  // of a weight in a layer
  bool is_paired;              // the quantised layer beside the original's
};

// `limit`: of the process; nothing: none. Errors: kNoResources with the least that works.
CalibrationMemory plan_memory(const files::Checkpoint& source, const Plan& plan, const models::ModelConfig& config,
                              const LayersInMemory& layers, std::optional<std::uint64_t> limit);

}  // namespace halfbyte::convert::calibrate
