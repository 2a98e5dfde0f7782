#include <halfbyte/restore_into.h>

#include <algorithm>

#include <halfbyte/low_bit_linear.h>
#include <halfbyte/operators.h>

#include "loader/checkpoint_source.h"
#include "loader/guarded.h"
#include "loader/restore_plan.h"
#include "loader/torch_runtime.h"
#include "models/dtype_rules.h"
#include "quant/operators/torch_dtype.h"

namespace halfbyte {
namespace {

using files::TensorRecord;

std::string type_name(at::ScalarType type) {
  const auto dtype = from_torch(type);
  return dtype ? std::string(name(*dtype)) : c10::toString(type);
}

// Carries out a plan that fits, and says what it did.
class Restoration {
 public:
  Restoration(const files::Checkpoint& checkpoint, CheckpointSource& source, const RestoreOptions& options,
              RestoreReport& report)
      : checkpoint_(checkpoint), source_(source), options_(options), report_(report) {}

  void run(const RestorePlan& plan) {
    for (const RestoreStep& step : plan.steps) {
      if (step.record) source_.verify(*step.record);
    }
    for (const RestoreStep& step : plan.steps) {
      if (!step.record) {
        leave(step);
      } else if (step.slots.front().packed) {
        set_packed(step);
      } else {
        fill(step);
      }
    }
  }

 private:
  bool is_kept(const std::string& slot_name) const {
    return std::ranges::any_of(options_.keep_float32, [&](const std::string& pattern) {
      return matches_tensor_or_module(pattern, slot_name);
    });
  }

  at::ScalarType wanted_type(const RestoreStep& step, models::Role role, Dtype recorded, bool is_kept_float32) const {
    const at::ScalarType current = step.slots.front().tensor.scalar_type();
    if (at::isFloatingType(current) && is_kept_float32) return at::kFloat;
    if (!options_.dtype) return current;
    return to_torch(models::loaded_dtype(*options_.dtype, role, recorded, false)).value_or(current);
  }

  void note(const RestoreStep& step, const std::vector<std::string>& before, const std::string& loaded) {
    for (std::size_t i = 0; i < step.slots.size(); ++i) {
      const Slot& slot = step.slots[i];
      if (before[i] != loaded && !slot.packed) report_.cast.push_back(slot.name);
      if (!step.record) continue;
      report_.restored.push_back({slot.name, step.checkpoint_names[i], slot.is_buffer, step.record->original_dtype,
                                  storage_of(*step.record), before[i], loaded});
    }
  }

  static std::vector<std::string> dtypes_of(const RestoreStep& step) {
    std::vector<std::string> out;
    for (const Slot& slot : step.slots) {
      out.push_back(slot.packed ? slot.packed->weight().description() : type_name(slot.tensor.scalar_type()));
    }
    return out;
  }

  void set_packed(const RestoreStep& step) {
    const std::vector<std::string> before = dtypes_of(step);
    const LowBitTensor weight = source_.read_packed(*step.record);
    for (const Slot& slot : step.slots) {
      slot.packed->set_weight(weight);
      slot.packed->set_path(slot.name.substr(0, slot.name.rfind(".weight")));
    }
    note(step, before, weight.description());
  }

  void fill(const RestoreStep& step) {
    const std::vector<std::string> before = dtypes_of(step);
    const TensorRecord& record = *step.record;
    const std::string& name = step.checkpoint_names.front();
    const bool is_kept_float32 = source_.is_kept_float32(name) || is_kept(step.slots.front().name);
    const at::ScalarType type = wanted_type(step, source_.role_of(name), recorded_dtype(record), is_kept_float32);
    put(step, source_.read(record, type), type);
    note(step, before, type_name(type));
  }

  // Values that stay the module's own, in the dtype of the policy.
  void leave(const RestoreStep& step) {
    const std::vector<std::string> before = dtypes_of(step);
    const Slot& slot = step.slots.front();
    const auto current = from_torch(slot.tensor.scalar_type());
    if (!current || !at::isFloatingType(slot.tensor.scalar_type())) return;
    const models::Role role =
        slot.is_buffer ? models::Role::kBuffer : models::role_of(checkpoint_.architecture, slot.name, slot.shape());
    const at::ScalarType type =
        wanted_type(step, role, step.derived_dtype.value_or(*current), step.is_kept_float32 || is_kept(slot.name));
    if (slot.tensor.scalar_type() == type) return;
    const at::Tensor data = slot.tensor.detach().to(type);
    for (const Slot& same : step.slots) replace(same.tensor, data);
    note(step, before, type_name(type));
  }

  void put(const RestoreStep& step, const at::Tensor& values, at::ScalarType type) const {
    const at::Tensor& target = step.slots.front().tensor;
    if (target.scalar_type() == type && can_overwrite(target)) return overwrite(target, values);
    const at::Tensor data = make_like(target, values, type, target.is_meta() ? options_.device : target.device());
    for (const Slot& slot : step.slots) replace(slot.tensor, data);
  }

  const files::Checkpoint& checkpoint_;
  CheckpointSource& source_;
  const RestoreOptions& options_;
  RestoreReport& report_;
};

RestoreReport restore(torch::nn::Module& module, const files::Checkpoint& checkpoint, const RestoreOptions& options) {
  RestoreReport report;
  LoadReport load_report;
  const LoadOptions load{.dtype = options.dtype.value_or(DtypePolicy::original()),
                         .keep_float32 = options.keep_float32,
                         .verify = options.verify};
  CheckpointSource source(checkpoint, load, load_report);
  const std::vector<Slot> slots = slots_of(module);
  std::vector<std::string> names = tensor_names(checkpoint);
  for (const Slot& slot : slots) names.push_back(slot.name);
  check_patterns(checkpoint, load, names);
  const RestorePlan plan = plan_restore(slots, checkpoint, source, options, report);
  if (options.strict) check_fits(checkpoint, plan, report);
  Restoration(checkpoint, source, options, report).run(plan);
  return report;
}

}  // namespace

RestoreReport restore_into(torch::nn::Module& module, const std::filesystem::path& checkpoint,
                           const RestoreOptions& options) {
  operators::register_operators();
  const files::Checkpoint opened = files::open_checkpoint(checkpoint);
  check_usable(options.device);
  return guarded(opened.directory.string(), [&] { return restore(module, opened, options); });
}

}  // namespace halfbyte
