#include "convert/training/weight_places.h"

#include <algorithm>
#include <utility>

#include <halfbyte/error.h>

#include "loader/files/derive.h"
#include "loader/files/printable.h"
#include "loader/files/tensor_reader.h"
#include "models/architectures/model_config.h"
#include "models/architectures/tensor_table.h"

namespace halfbyte::convert {
namespace {

using files::TensorRecord;
using models::ModuleAt;
using models::Naming;

[[noreturn]] void refuse(const std::string& parameter, const std::string& problem) {
  throw Error(ErrorCode::kUnsupported,
              "the weight " + files::in_quotes(parameter) + " cannot be trained and written back: " + problem);
}

// What an expert's parameter is called whose values are in a stack: a Linear's weight, or its bias.
std::string parameter_of(const ModuleAt& stack, const Naming& names, std::int64_t expert) {
  const bool is_bias = stack.row->role == models::Role::kBias;
  const models::ModuleName down = &Naming::stacked_down, gate_up = &Naming::stacked_gate_up;
  const models::ModuleName linear = !is_bias                                          ? stack.row->module
                                    : stack.row->module == &Naming::stacked_down_bias ? down
                                                                                      : gate_up;
  return models::path_above(names, models::Place::kExpert, std::to_string(stack.layer), std::to_string(expert)) +
         std::string(names.*linear) + (is_bias ? ".bias" : ".weight");
}

void check_untied(const files::Checkpoint& checkpoint, const std::string& tensor) {
  for (const auto& [alias, owner] : files::declared_ties(checkpoint)) {
    if (tensor != alias && tensor != owner) continue;
    if (!checkpoint.manifest.find(alias) || !checkpoint.manifest.find(owner)) continue;
    refuse(tensor, "config.json ties " + files::in_quotes(alias) + " to " + files::in_quotes(owner) +
                       ", and both are stored, which training would make two weights");
  }
}

}  // namespace

WeightPlaces::WeightPlaces(const files::Checkpoint& checkpoint) : checkpoint_(checkpoint) {
  const models::ModelConfig config = checkpoint.model_config();
  for (const ModuleAt& module : models::modules_of(config)) {
    if (module.row->place != models::Place::kExperts) continue;
    for (std::int64_t expert = 0; expert < config.moe.num_experts; ++expert)
      parts_.emplace(parameter_of(module, *config.naming, expert), WeightPlace{module.weight(), expert});
  }
}

WeightPlace WeightPlaces::of(const std::string& parameter) const {
  WeightPlace out{parameter};
  if (const auto part = parts_.find(parameter); part != parts_.end()) out = part->second;
  for (const auto& [alias, owner] : checkpoint_.manifest.ties) {
    if (alias == out.tensor) out.tensor = owner;
  }
  const TensorRecord* record = checkpoint_.manifest.find(out.tensor);
  if (!record) refuse(parameter, "the checkpoint has no tensor of that name, but makes it of others");
  if (record->scheme) refuse(parameter, "it is packed in the checkpoint; dequantise that first");
  if (!files::TensorReader::can_read(*record))
    refuse(parameter, "it is " + std::string(name(record->stored_dtype)) + " in the checkpoint");
  check_untied(checkpoint_, out.tensor);
  return out;
}

}  // namespace halfbyte::convert
