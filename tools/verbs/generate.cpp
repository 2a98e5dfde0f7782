// halfbyte generate CKPT --prompt TEXT, by kernels alone; where those have no form for it, halfbyte-model's modules do
// it.
#include "tools/text/generate.h"

#include <halfbyte/fused_model.h>

#include "quant/threads.h"
#include "tools/cli/launcher.h"
#include "tools/cli/log.h"
#include "tools/cli/sudden_ends.h"
#include "tools/verbs/verbs.h"

namespace halfbyte::cli {
namespace {

class FusedTextMaker final : public TextMaker {
 public:
  explicit FusedTextMaker(std::shared_ptr<const FusedModel> model) : model_(std::move(model)) {}

  const models::ModelConfig& config() const override { return model_->config(); }
  std::vector<Generation> generate(const std::vector<TokenIds>& prompts,
                                   const GenerateOptions& options) const override {
    return model_->generate(prompts, options);
  }

 private:
  std::shared_ptr<const FusedModel> model_;
};

// What the words ask for that is made of LibTorch's modules; empty: nothing.
std::string of_modules(const GenerateWords& words) {
  if (!words.adapters.empty()) return "--adapter";
  if (!words.speculation.draft.empty()) return "--draft";
  if (!words.cache.path.empty()) return "--prompt-cache";
  return launched_rank() ? "being one of several ranks" : "";
}

OpenedTextMaker open_fused(GenerateWords& words, const models::Tokenizer*, const CommonOptions&) {
  if (const std::string word = of_modules(words); !word.empty()) return {nullptr, word + " is theirs"};
  check_room_left();
  if (words.model.threads > 0) quant::set_max_threads(words.model.threads);
  FusedLoad load = load_fused(words.model.checkpoint, load_options(words.model));
  check_room_left();
  if (!load.model) return {nullptr, load.why_not};
  log_info("in kernels alone, without LibTorch");
  log_load(words.model, load.model->report(), load.model->config());
  words.sampling.options.lookup = words.speculation.looks_up();
  return {std::make_unique<FusedTextMaker>(std::move(load.model))};
}

}  // namespace

Action prepare_generate(OptionParser& parser, const CommonOptions& common) {
  return prepare_generate_with(parser, common, {open_fused, /*may_hand_over=*/true});
}

}  // namespace halfbyte::cli
