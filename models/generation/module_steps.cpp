#include "models/generation/module_steps.h"

#include <optional>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/error.h>

#include "models/generation/generate.h"
#include "models/modules/decoder.h"
#include "models/parallel/summed.h"
#include "quant/operators/translate.h"

namespace halfbyte::models {
namespace {

class ModuleGiven final : public StepModel::Given {
 public:
  ModuleGiven(const CausalLM& model, at::Tensor hidden) : model_(model), hidden_(std::move(hidden)) {}

  std::span<const float> logits(std::int64_t first, std::int64_t count) override {
    logits_ = model_.head(hidden_.narrow(0, first, count)).cpu().contiguous();
    return {logits_.const_data_ptr<float>(), static_cast<std::size_t>(logits_.numel())};
  }

 private:
  const CausalLM& model_;
  at::Tensor hidden_, logits_;
};

// Ranks that run a model together must come to the same passes, unless one of them leads: a guess is taken by how long
// passes take.
void check_group(const CausalLM& model, const GenerateOptions& options) {
  if (!model.decoder().compute().group) return;
  const auto refuse = [](const char* what) {
    throw Error(ErrorCode::kUnsupported, std::string(what) + " is not for a model that several ranks run together");
  };
  if (options.draft) refuse("a draft model");
  if (!model.group_in_step()) return;
  if (options.lookup) refuse("speculation");
  if (options.cache) refuse("a prompt cache");
}

}  // namespace

std::unique_ptr<StepModel::Given> ModuleSteps::step(std::span<const std::int64_t> ids,
                                                    std::span<const StepRow> rows) const {
  const at::Tensor tokens = at::tensor(at::IntArrayRef(ids.data(), ids.size())).to(model_.device());
  return std::make_unique<ModuleGiven>(model_, model_.step(tokens, rows));
}

std::vector<Generation> CausalLM::generate(const std::vector<TokenIds>& prompts, const GenerateOptions& options) const {
  check_group(*this, options);
  for (const TokenIds& prompt : prompts) check_same_tokens(group_in_step(), prompt);
  const c10::InferenceMode guard;
  const ModuleSteps steps(*this);
  std::optional<ModuleSteps> draft;
  if (options.draft) draft.emplace(*options.draft);
  try {
    return models::generate(steps, prompts, options, draft ? &*draft : nullptr);
  } catch (const c10::Error& error) {  // not std::exception: what a callback throws is the caller's own
    throw_translated("generating under " + policy_.name() + " on " + device().str(), error);
  }
}

}  // namespace halfbyte::models
