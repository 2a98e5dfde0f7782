// Which tensor of a checkpoint goes where in a module, and what does not fit. Changes nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <halfbyte/restore_into.h>

#include "loader/checkpoint_source.h"
#include "loader/module_slots.h"

namespace halfbyte {

// One piece of the module's memory: one slot, or several that are tied.
struct RestoreStep {
  std::vector<Slot> slots;
  const files::TensorRecord* record = nullptr;  // null: the module's own values stay
  std::vector<std::string> checkpoint_names;    // by slot, where there is a record
  std::optional<Dtype> derived_dtype;           // of a buffer that the checkpoint derives
  bool is_kept_float32 = false;                 // such a buffer, by the manifest
};

struct RestorePlan {
  std::vector<RestoreStep> steps;
  bool lacks_buffers = false;  // some of what is missing are buffers
};

// Fills the report's lists of what does not fit: derived, missing, unused, mismatched, and its notes.
// Errors: kInvalidArgument when two tensors are renamed to one.
RestorePlan plan_restore(const std::vector<Slot>& slots, const files::Checkpoint& checkpoint, CheckpointSource& source,
                         const RestoreOptions& options, RestoreReport& report);

// Errors: kInvalidArgument naming the first few of each list and how many more there are.
void check_fits(const files::Checkpoint& checkpoint, const RestorePlan& plan, const RestoreReport& report);

}  // namespace halfbyte
