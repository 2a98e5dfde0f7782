#include <halfbyte/fused_model.h>

#include <new>

#include "loader/arithmetic_choice.h"
#include "loader/check_tensors.h"
#include "loader/files/printable.h"
#include "loader/fused_source.h"
#include "loader/report_lines.h"
#include "models/cpu/fused_steps.h"
#include "models/cpu/fused_views.h"
#include "models/generation/generate.h"
#include "quant/threads.h"

namespace halfbyte {
namespace {

FusedLoad refused(std::string why) { return {nullptr, std::move(why)}; }

std::string why_not(const LoadOptions& options) {
  if (!options.device.is_cpu()) return "it is to run on " + options.device.name();
  if (options.group || options.pipeline != 1) return "several ranks run it together";
  if (options.verify != Verification::kNone) return "hashes are to be compared first";
  if (!options.dtype.operand() || options.dtype.stream() != Dtype::kFloat32)
    return "under " + options.dtype.name() + " what lies between products is not float32";
  return "";
}

FusedLoad build(const files::Checkpoint& checkpoint, const LoadOptions& options) {
  if (!checkpoint.architecture) return refused("its family is not known");
  const models::ModelConfig config = checkpoint.model_config();
  if (std::string why = models::cpu::why_not_fused(config); !why.empty()) return refused(std::move(why));
  check_tensors(checkpoint, config);
  check_patterns(checkpoint, options, tensor_names(checkpoint));
  LoadReport report = begin_report(checkpoint, options.dtype);
  report.device = options.device.name();
  report.device_reason = "asked for";
  const quant::Arithmetic arithmetic = choose_arithmetic(options, options.device, quant::is_int8_fast());
  report.compute = quant::name(arithmetic);
  report.key_values = options.key_values == KeyValues::kInt8 ? "int8" : report.operand_dtype;
  note_text_part(config, report);
  FusedSource source(checkpoint, options, arithmetic, report);
  models::cpu::FusedWeights weights;
  if (!source.gather(config, weights)) return refused(source.why_not());
  std::string why;
  auto steps = models::cpu::FusedSteps::make(config, std::move(weights), options.dtype, options.key_values, why);
  if (!steps) return refused(std::move(why));
  note_unused_buffers(checkpoint, report);
  note_products(options.dtype, report);
  return {std::make_shared<const FusedModel>(std::move(steps), std::move(report)), ""};
}

}  // namespace

FusedModel::FusedModel(std::shared_ptr<const models::StepModel> steps, LoadReport report)
    : steps_(std::move(steps)), report_(std::make_shared<const LoadReport>(std::move(report))) {}

const models::ModelConfig& FusedModel::config() const noexcept { return steps_->config(); }

std::vector<Generation> FusedModel::generate(const std::vector<TokenIds>& prompts,
                                             const GenerateOptions& options) const {
  if (options.draft)
    throw Error(ErrorCode::kUnsupported, "a draft model is a LibTorch module; generate with load_low_bit()'s model");
  return models::generate(*steps_, prompts, options);
}

FusedLoad load_fused(const std::filesystem::path& checkpoint, const LoadOptions& options) {
  if (std::string why = why_not(options); !why.empty()) return refused(std::move(why));
  quant::start_own_threads(quant::max_threads());
  const files::Checkpoint opened = files::open_checkpoint(checkpoint);
  try {
    return build(opened, options);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kNoResources, opened.directory.string() + ": not enough memory to load this model");
  }
}

}  // namespace halfbyte
