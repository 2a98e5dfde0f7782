#include "loader/model_fingerprint.h"

#include <optional>
#include <set>
#include <span>

#include <ATen/core/Tensor.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/low_bit_linear.h>

#include "loader/files/hash.h"
#include "loader/module_slots.h"

namespace halfbyte {
namespace {

void add_bytes(files::Hash128& hash, const at::Tensor& row) {
  const at::Tensor here = row.detach().contiguous().cpu();
  hash.update(std::as_bytes(std::span(static_cast<const char*>(here.const_data_ptr()), here.nbytes())));
}

// The first, the middle and the last row, of each of these matrices if there are several.
void add_rows(files::Hash128& hash, const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  if (tensor.dim() < 2) return add_bytes(hash, tensor);
  const std::int64_t count = tensor.size(0);
  for (const std::int64_t at : std::set<std::int64_t>{0, count / 2, count - 1}) add_rows(hash, tensor.select(0, at));
}

void add_slot(files::Hash128& hash, const Slot& slot) {
  hash.update(slot.name + '\n');
  if (!slot.packed) return add_rows(hash, slot.tensor);
  const LowBitTensor& weight = slot.packed->weight();
  add_rows(hash, weight.codes);
  add_rows(hash, weight.scales);
  for (const LowBitTensor::Extra& extra : LowBitTensor::extras()) {
    if (const auto& tensor = weight.*extra.tensor) add_rows(hash, *tensor);
  }
}

void add_slots(files::Hash128& hash, const models::CausalLM& model) {
  auto& module = const_cast<models::CausalLM&>(model);  // slots can be filled; these are read
  for (const Slot& slot : slots_of(module)) add_slot(hash, slot);
}

// Where the checkpoint has no hashes of its values, what some of them are belongs to it.
std::string model_hash(const Model& model) {
  const LoadReport& report = model.report();
  if (report.identity_has_values) return report.identity;
  files::Hash128 hash;
  hash.update(report.identity);
  add_slots(hash, model.module());
  return hash.hex();
}

// Patterns and overrides decide the dtypes of single tensors.
std::string dtypes_hash(const LoadReport& report) {
  files::Hash128 hash;
  for (const LoadedTensor& tensor : report.tensors)
    hash.update(tensor.name + '\n' + tensor.loaded + '\n' + tensor.operand + '\n');
  return hash.hex();
}

}  // namespace

std::string rows_hash(const models::CausalLM& model) {
  files::Hash128 hash;
  add_slots(hash, model);
  return hash.hex();
}

std::vector<FingerprintPart> fingerprint_of(const Model& model) {
  const LoadReport& report = model.report();
  // Rows are read as they were loaded.
  const char* const model_differs = report.identity_has_values
                                        ? "another model, or other weights"
                                        : "another model, other weights, or some of them in other dtypes";
  return {{"policy", "another dtype policy", true, report.policy},
          {"compute", "another arithmetic of packed codes", true, report.compute},
          {"key_values", "keys and values kept otherwise", true, report.key_values},
          {"model", model_differs, false, model_hash(model)},
          {"dtypes", "some tensors in other dtypes", false, dtypes_hash(report)}};
}

}  // namespace halfbyte
