// Codes that were chosen by what a model's layers are given, for convert_tensors to write. Made by convert/calibrate,
// which needs LibTorch; what only quantises needs this interface alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <halfbyte/convert.h>

#include "convert/output/journal.h"
#include "convert/plan.h"

namespace halfbyte::convert {

// One of several runs that calibrate together, at the same time.
struct CalibrationPart {
  WorkPart part;
  files::fs::path work;  // NAME.partial, which all of them see, with a folder for each
};

// Where a calibration works, and what it finds there.
struct CalibrationPlace {
  files::fs::path directory;                                // of its own; it is there
  Journal& journal;                                         // a line a layer that is finished from now on
  const std::map<std::int64_t, models::HeldJson>& earlier;  // recorded by an earlier run; used where the bytes agree
  std::optional<CalibrationPart> part = {};                 // nothing: alone
};

class Calibrator {
 public:
  virtual ~Calibrator() = default;

  // What decides its codes, for the result's manifest and for knowing a conversion again.
  virtual nlohmann::json record() const = 0;
  // What its directory takes on the disk, about; `is_shared`: with those of parts, and what they give each other.
  virtual std::uint64_t disk_bytes(const files::Checkpoint& source, const Plan& plan, bool is_shared) const = 0;
  // Chooses the codes of all that it has, into files, a layer after another. Before anything below. Errors:
  // kUnsupported where the model cannot be run; kInterrupted; kIo, also where another part is gone; kNoResources, also
  // for a memory limit that is too low.
  virtual void run(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options,
                   const CalibrationPlace& place) = 0;
  // Whether it has codes of this tensor of the plan; else the tensor is quantised from its weights alone.
  virtual bool has(std::size_t tensor) const noexcept = 0;
  // As quantize_groups gives them: groups [first, first + group_stats.size()). Any threads. Precondition: has(tensor).
  // Errors: as of reading a file.
  virtual void read(std::size_t tensor, std::uint64_t first, quant::PackedRows out,
                    std::span<quant::ErrorStats> group_stats) const = 0;
  // What a user should know of how the codes were chosen.
  virtual std::vector<Text> notes() const = 0;
};

}  // namespace halfbyte::convert
