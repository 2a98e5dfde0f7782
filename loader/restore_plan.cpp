#include "loader/restore_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "loader/files/printable.h"
#include "quant/operators/torch_dtype.h"

namespace halfbyte {
namespace {

using files::TensorRecord;

enum class Kind { kFloating, kComplex, kInteger };

Kind kind_of(at::ScalarType type) {
  if (at::isFloatingType(type)) return Kind::kFloating;
  return at::isComplexType(type) ? Kind::kComplex : Kind::kInteger;
}

Kind kind_of(const TensorRecord& record) {
  const auto type = to_torch(record.stored_dtype);
  return record.scheme || !type ? Kind::kFloating : kind_of(*type);
}

class Planner {
 public:
  Planner(const files::Checkpoint& checkpoint, CheckpointSource& source, const RestoreOptions& options,
          RestoreReport& report)
      : checkpoint_(checkpoint), source_(source), options_(options), report_(report) {}

  RestorePlan run(const std::vector<Slot>& slots) {
    name_targets();
    std::set<std::string> module_names;
    for (const Slot& slot : slots) module_names.insert(slot.name);
    for (std::vector<Slot>& group : tied_groups(slots)) add_step(std::move(group));
    list_unused(module_names);
    return std::move(plan_);
  }

 private:
  std::string renamed(const std::string& name) const { return options_.rename ? options_.rename(name) : name; }

  void name_target(const std::string& name) {
    const std::string target = renamed(name);
    if (target.empty()) return;
    const auto [at, is_new] = targets_.emplace(target, name);
    if (is_new) return;
    throw Error(ErrorCode::kInvalidArgument,
                "restore_into: rename gives " + at->second + " and " + name + " one name, " + target);
  }

  void name_targets() {
    for (const TensorRecord& record : checkpoint_.manifest.tensors) name_target(record.name);
    for (const auto& [alias, owner] : checkpoint_.manifest.ties) name_target(alias);
    for (const models::DerivedBuffer& buffer : checkpoint_.manifest.buffers) derived_[renamed(buffer.name)] = &buffer;
  }

  // Slots that are one piece of memory, in the order of the first.
  static std::vector<std::vector<Slot>> tied_groups(const std::vector<Slot>& slots) {
    std::vector<std::vector<Slot>> groups;
    std::unordered_map<const void*, std::vector<std::size_t>> by_storage;
    for (const Slot& slot : slots) {
      const bool has_storage = slot.tensor.defined() && slot.tensor.has_storage();
      const void* key = has_storage ? static_cast<const void*>(slot.tensor.storage().unsafeGetStorageImpl()) : nullptr;
      std::vector<std::size_t>& near = by_storage[key];
      const auto same = std::ranges::find_if(
          near, [&](std::size_t i) { return is_same_memory(groups[i].front().tensor, slot.tensor); });
      if (same != near.end()) {
        groups[*same].push_back(slot);
        continue;
      }
      near.push_back(groups.size());
      groups.push_back({slot});
    }
    return groups;
  }

  void add_step(std::vector<Slot> group) {
    RestoreStep step;
    step.slots = std::move(group);
    std::string found_as;
    bool is_mismatched = false;
    for (const Slot& slot : step.slots) {
      const auto target = targets_.find(slot.name);
      if (target == targets_.end()) continue;
      const TensorRecord& record = source_.record(target->second);
      used_.insert(record.name);
      if (!fits(slot, record) || (step.record && !agrees(step, slot, record))) {
        is_mismatched = true;
      } else if (!step.record) {
        step.record = &record;
        found_as = target->second;
      }
    }
    for (const Slot& slot : step.slots) {
      const auto target = targets_.find(slot.name);
      step.checkpoint_names.push_back(target == targets_.end() ? found_as : target->second);
    }
    if (!step.record) add_unfilled(step, is_mismatched);
    plan_.steps.push_back(std::move(step));
  }

  void mismatch(const Slot& slot, const std::string& found, const std::string& wanted) {
    report_.mismatched.push_back(slot.name + ": " + found + " in the checkpoint, " + wanted + " in the module");
  }

  bool fits(const Slot& slot, const TensorRecord& record) {
    if (record.shape != slot.shape()) {
      mismatch(slot, files::printable(record.shape), files::printable(slot.shape()));
      return false;
    }
    if (slot.packed) {
      if (!record.scheme) mismatch(slot, "dense", "a LowBitLinear's packed weight");
      return record.scheme != nullptr;
    }
    if (kind_of(record) == kind_of(slot.tensor.scalar_type())) return true;
    mismatch(slot, std::string(name(record.scheme ? record.scale_dtype : record.stored_dtype)),
             c10::toString(slot.tensor.scalar_type()));
    return false;
  }

  // Tied in the module, but not in the checkpoint: the values decide.
  bool agrees(const RestoreStep& step, const Slot& slot, const TensorRecord& record) {
    if (step.record == &record) return true;
    if (source_.read(*step.record, at::kFloat).equal(source_.read(record, at::kFloat))) return true;
    report_.mismatched.push_back(slot.name + ": has other values than " + step.record->name +
                                 " in the checkpoint; in the module they are one tensor");
    return false;
  }

  bool is_non_persistent(const Slot& slot) const {
    return slot.is_buffer && std::ranges::any_of(options_.non_persistent, [&](const std::string& pattern) {
             return files::matches_pattern(pattern, slot.name);
           });
  }

  // The module's own values stay: because they are its own business, or for want of others.
  void add_unfilled(RestoreStep& step, bool is_mismatched) {
    for (const Slot& slot : step.slots) {
      const auto derived = derived_.find(slot.name);
      if (derived != derived_.end()) {
        step.derived_dtype = derived->second->original_dtype;
        step.is_kept_float32 = source_.is_kept_float32(derived->second->name);
      }
      if (derived != derived_.end() || is_non_persistent(slot)) {
        report_.derived.push_back(slot.name);
        if (slot.tensor.is_meta()) report_.notes.push_back(slot.name + " is on Meta: only the module can compute it");
      } else if (!is_mismatched) {
        report_.missing.push_back(slot.name);
        plan_.lacks_buffers = plan_.lacks_buffers || slot.is_buffer;
      }
    }
  }

  void list_unused(const std::set<std::string>& module_names) {
    for (const auto& [target, name] : targets_) {
      const TensorRecord& record = source_.record(name);
      // An alias has no values of its own.
      if (module_names.contains(target) || used_.contains(record.name) || record.name != name) continue;
      const bool is_derived = models::role_of(checkpoint_.architecture, name, record.shape) == models::Role::kBuffer;
      if (is_derived) {
        report_.notes.push_back(name + " is stored, but the module lacks it: its family derives it");
      } else {
        report_.unused.push_back(name);
      }
    }
  }

  const files::Checkpoint& checkpoint_;
  CheckpointSource& source_;
  const RestoreOptions& options_;
  RestoreReport& report_;
  RestorePlan plan_;
  std::map<std::string, std::string> targets_;                   // the module's name -> the checkpoint's
  std::map<std::string, const models::DerivedBuffer*> derived_;  // by the module's name
  std::set<std::string> used_;                                   // records that some slot has the name of
};

std::string first_of(const std::vector<std::string>& list) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(list.size(), kShown); ++i) text += (i ? ", " : "") + list[i];
  if (list.size() > kShown) text += " (and " + std::to_string(list.size() - kShown) + " more)";
  return text;
}

}  // namespace

RestorePlan plan_restore(const std::vector<Slot>& slots, const files::Checkpoint& checkpoint, CheckpointSource& source,
                         const RestoreOptions& options, RestoreReport& report) {
  return Planner(checkpoint, source, options, report).run(slots);
}

void check_fits(const files::Checkpoint& checkpoint, const RestorePlan& plan, const RestoreReport& report) {
  std::string problems;
  const auto add = [&](const char* what, const std::vector<std::string>& list) {
    if (!list.empty()) problems += std::string(problems.empty() ? " " : "; ") + what + ": " + first_of(list);
  };
  add("missing in the checkpoint", report.missing);
  add("not in the module", report.unused);
  add("different", report.mismatched);
  if (problems.empty()) return;
  problems += "; .rename maps names, .strict = false restores what fits";
  if (plan.lacks_buffers) problems += ", .non_persistent names buffers that the module computes";
  throw Error(ErrorCode::kInvalidArgument,
              files::printable_path(checkpoint.directory) + " does not fit the module:" + problems);
}

}  // namespace halfbyte
