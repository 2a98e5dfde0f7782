// A checkpoint as a model that runs in halfbyte's own kernels alone, on the CPU: opened in milliseconds, without
// LibTorch.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <halfbyte/error.h>
#include <halfbyte/generate.h>
#include <halfbyte/load_options.h>
#include <halfbyte/load_report.h>
#include <halfbyte/not_finite_error.h>

namespace halfbyte {

namespace models {
class StepModel;
struct ModelConfig;
}  // namespace models

// Gives what Model::generate gives, token by token. Copies share it. Threads: any number may generate from one model at
// once.
class FusedModel {
 public:
  FusedModel(std::shared_ptr<const models::StepModel> steps, LoadReport report);

  // Errors: kInvalidArgument as Model::generate's; kUnsupported for options.draft, which is a LibTorch module;
  // kNoResources; kCorrupt naming a weight that is not finite; NotFiniteError.
  std::vector<Generation> generate(const std::vector<TokenIds>& prompts, const GenerateOptions& options = {}) const;
  const LoadReport& report() const noexcept { return *report_; }
  const models::ModelConfig& config() const noexcept;

 private:
  std::shared_ptr<const models::StepModel> steps_;
  std::shared_ptr<const LoadReport> report_;
};

struct FusedLoad {
  std::shared_ptr<const FusedModel> model;  // null: `why_not` says why
  // What of the model, its weights or the options is for load_low_bit() alone: "its logits are capped".
  std::string why_not;
};

// Opens a checkpoint as load_low_bit() does, where kernels alone can run it so: models of attention and MLPs or
// experts, on the CPU, under policies that leave what lies between products in float32. Errors: as load_low_bit(), but
// for what is a reason in `why_not`.
FusedLoad load_fused(const std::filesystem::path& checkpoint, const LoadOptions& options = {});

}  // namespace halfbyte
