// halfbyte generate CKPT --prompt TEXT, by LibTorch's modules
#include "tools/text/generate.h"

#include <optional>

#include "tools/model/model_options.h"
#include "tools/model/model_verbs.h"
#include "tools/model/prompt_cache_options.h"
#include "tools/model/speculation_options.h"

namespace halfbyte::cli {
namespace {

class ModuleTextMaker final : public TextMaker {
 public:
  ModuleTextMaker(GenerateWords& words, const models::Tokenizer* tokenizer, const CommonOptions& common)
      : words_(words),
        model_(load_model(words.model, common)),
        adapters_(beside(model_, words.adapters)),
        cache_(open_prompt_cache(words.cache, model_, PromptCacheFileOptions::Kept::kPrompt)),
        speculator_(words.speculation, words.model, tokenizer, common, words.sampling.options) {
    if (cache_) words.sampling.options.cache = &cache_->cache();
  }

  const models::ModelConfig& config() const override { return model_.config(); }
  std::vector<Generation> generate(const std::vector<TokenIds>& prompts,
                                   const GenerateOptions& options) const override {
    return model_.generate(prompts, options);
  }
  void save() override { save_prompt_cache(cache_, words_.cache); }

 private:
  const GenerateWords& words_;
  Model model_;
  std::shared_ptr<const void> adapters_;
  std::optional<PromptCacheFile> cache_;
  Speculator speculator_;
};

OpenedTextMaker open_modules(GenerateWords& words, const models::Tokenizer* tokenizer, const CommonOptions& common) {
  return {std::make_unique<ModuleTextMaker>(words, tokenizer, common)};
}

}  // namespace

Action prepare_generate(OptionParser& parser, const CommonOptions& common) {
  return prepare_generate_with(parser, common, {open_modules, /*may_hand_over=*/false});
}

}  // namespace halfbyte::cli
