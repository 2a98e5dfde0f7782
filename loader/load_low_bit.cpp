#include <halfbyte/load_low_bit.h>

#include <algorithm>

#include <halfbyte/causal_lm.h>
#include <halfbyte/operators.h>

#include "loader/arithmetic_choice.h"
#include "loader/check_tensors.h"
#include "loader/checkpoint_source.h"
#include "loader/files/checkpoint_hash.h"
#include "loader/files/family.h"
#include "loader/files/mappings.h"
#include "loader/files/printable.h"
#include "loader/guarded.h"
#include "loader/module_slots.h"
#include "loader/report_lines.h"
#include "loader/thread_count.h"
#include "loader/torch_runtime.h"
#include "models/parallel/alike.h"
#include "models/parallel/division.h"
#include "models/parallel/stages.h"
#include "models/sessions/session.h"
#include "quant/kernels/cpu_products.h"
#include "quant/threads.h"

namespace halfbyte {
namespace {

std::string why_unknown(const files::Checkpoint& checkpoint) {
  if (!checkpoint.has_config()) return "there is no config.json, so the family of this model is not known";
  const std::string code = files::names_remote_code(checkpoint) ? ", and code from a checkpoint is never run" : "";
  if (!files::family_in_quotes(checkpoint).empty()) return files::family_subject(checkpoint) + " is not known" + code;
  return "config.json has neither a model_type nor architectures, so the family of this model is not known" + code;
}

void check_known(const files::Checkpoint& checkpoint) {
  if (checkpoint.architecture) return;
  std::string known;
  for (const models::Architecture& row : models::architectures())
    known += (known.empty() ? "" : ", ") + std::string(row.family->label);
  throw Error(ErrorCode::kUnsupported,
              files::printable_path(checkpoint.directory) + ": " + why_unknown(checkpoint) +
                  "; models of these families can be run: " + known +
                  "; any other can be converted, inspected, verified, dequantised, and loaded by name (load_state)");
}

// The rotary tables' buffer is computed, on the CPU, by the module that has it.
void move_derived_buffers(models::CausalLM& module, at::Device device) {
  for (const Slot& slot : slots_of(module)) {
    if (slot.is_buffer && slot.tensor.device().type() != device.type()) replace(slot.tensor, slot.tensor.to(device));
  }
}

// Whether 8 bits were had where they were asked for.
void note_key_values(const models::CausalLM& module, KeyValues wanted, LoadReport& report) {
  const bool is_int8 = module.make_session().key_values() == KeyValues::kInt8;
  report.key_values = is_int8 ? "int8" : report.operand_dtype;
  if (wanted == KeyValues::kInt8 && !is_int8)
    report.notes.emplace_back(
        "keys and values stay as they are: this model keeps latent or recurrent states, and those have no form in 8 "
        "bits");
}

// What must be the same in all ranks for their sums to be of one model.
std::vector<std::string> ranks_things(const files::Checkpoint& checkpoint, const LoadReport& report,
                                      const LoadOptions& options, const models::ModelConfig& config) {
  std::vector<std::string> out = {"halfbyte " HALFBYTE_VERSION ", checkpoint " + files::checkpoint_likeness(checkpoint),
                                  "policy " + report.policy, "products in " + report.compute,
                                  std::string("instruction set ") + quant::isa_name()};
  for (const DtypeOverride& each : options.overrides) out.push_back(each.pattern + "=" + each.policy.name());
  for (const std::string& each : options.keep_float32) out.push_back("keep_float32 " + each);
  out.push_back("pipeline " + std::to_string(options.pipeline));
  out.push_back("sums in " + std::string(name(options.reduce_dtype)));
  // A token's experts are chosen in each rank, from the same bits.
  if (std::ranges::any_of(config.layers, &models::LayerConfig::has_experts))
    out.push_back("threads " + std::to_string(thread_count()));
  out.emplace_back(options.key_values == KeyValues::kInt8 ? "keys and values in 8 bits"
                                                          : "keys and values as they are");
  return out;
}

struct Parts {
  models::ModelConfig config;
  models::ModelWeights weights;
};

// Of each layer, as the files have it.
std::vector<std::uint64_t> layer_bytes(const models::ModelConfig& config, const CheckpointSource& source) {
  std::vector<std::uint64_t> out(config.layers.size());
  for (const models::ModuleAt& module : models::modules_of(config)) {
    if (module.layer >= 0) out.at(static_cast<std::size_t>(module.layer)) += source.record(module.weight()).size_bytes;
  }
  return out;
}

// All weights, or a rank's part of them, which the report then speaks of.
Parts gather(const files::Checkpoint& checkpoint, const models::ModelConfig& config, CheckpointSource& source,
             const LoadOptions& options, LoadReport& report) {
  if (!options.group) return {config, models::gather_weights(config, source)};
  check_alike(*options.group, ranks_things(checkpoint, report, options, config), "runs another thing");
  const int rank = options.group->rank(), size = options.group->size();
  const models::Stage stage = models::stage_of(rank, size, options.pipeline);
  if (stage.count > 1 && stage.places > 1) options.group->part(stage.ranks());  // before there is work to lose
  const models::ModelConfig own = models::staged(config, layer_bytes(config, source), stage);
  models::ModelWeights weights = models::gather_weights(own, source);
  const models::Division division = models::divide(own, weights, rank, size, options.pipeline);
  report.notes.push_back(division.description());
  const models::MappedFiles mapped{
      [](const at::Tensor& tensor) { return files::mapping_at(tensor.const_data_ptr()).path != nullptr; },
      [](const at::Tensor& tensor) { files::let_go(tensor.const_data_ptr(), tensor.nbytes()); }};
  return {models::divided(own, division), models::divided(own, std::move(weights), division, mapped)};
}

Model build(const files::Checkpoint& checkpoint, const LoadOptions& options) {
  check_known(checkpoint);
  const models::ModelConfig config = checkpoint.model_config();
  check_tensors(checkpoint, config);
  check_patterns(checkpoint, options, tensor_names(checkpoint));
  LoadReport report = begin_report(checkpoint, options.dtype);
  const Device chosen = begin_on_device(options.device, report).device;
  const quant::Arithmetic arithmetic = choose_arithmetic(options, chosen, quant::is_int8_fast());
  report.compute = quant::name(arithmetic);
  note_text_part(config, report);
  const at::Device device = to_torch(chosen);
  CheckpointSource source(checkpoint, options, report, device);
  if (options.group && !device.is_cpu())
    throw Error(ErrorCode::kUnsupported, "ranks run a model together on the CPU alone; load it there");
  if (!options.group && options.pipeline != 1)
    throw Error(ErrorCode::kInvalidArgument, "stages of layers are for ranks; none were given");
  if (options.reduce_dtype != Dtype::kFloat32 && options.reduce_dtype != Dtype::kBfloat16) {
    throw Error(ErrorCode::kInvalidArgument, "what ranks add goes between them in float32 or bfloat16, not in " +
                                                 std::string(name(options.reduce_dtype)));
  }
  Parts parts = gather(checkpoint, config, source, options, report);
  auto module =
      std::make_shared<models::CausalLM>(parts.config, parts.weights, options.dtype, arithmetic, options.key_values,
                                         options.group, options.pipeline, options.reduce_dtype == Dtype::kBfloat16);
  parts.weights = {};  // what was cut is the module's alone
  note_key_values(*module, options.key_values, report);
  move_derived_buffers(*module, device);
  note_unused_buffers(checkpoint, report);
  if (device.is_cpu()) note_products(options.dtype, report);
  module->check_contract();
  return Model(std::move(module), std::move(report));
}

}  // namespace

Model::Model(std::shared_ptr<models::CausalLM> module, LoadReport report)
    : module_(std::move(module)), report_(std::make_shared<const LoadReport>(std::move(report))) {}

const models::ModelConfig& Model::config() const noexcept { return module_->config(); }

std::vector<Generation> Model::generate(const std::vector<TokenIds>& prompts, const GenerateOptions& options) const {
  if (module_->device().is_meta()) {
    throw Error(ErrorCode::kContract, "the model is on meta, where tensors have no values; load it on cpu to generate");
  }
  return module_->generate(prompts, options);
}

Model load_low_bit(const std::filesystem::path& checkpoint, const LoadOptions& options) {
  operators::register_operators();
  quant::start_threads(thread_count());
  const files::Checkpoint opened = files::open_checkpoint(checkpoint);
  return guarded(opened.directory.string(), [&] { return build(opened, options); });
}

}  // namespace halfbyte
