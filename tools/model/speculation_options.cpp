#include "tools/model/speculation_options.h"

#include <algorithm>

#include <halfbyte/error.h>

namespace halfbyte::cli {
namespace {

// A vocabulary may be padded with names of nothing, so that of two the longer one is as good.
void check_same(const std::string& name, const models::Tokenizer& own, const std::string& draft_name,
                const models::Tokenizer& draft) {
  const std::int64_t count = std::min(own.vocab_size(), draft.vocab_size());
  for (std::int64_t id = 0; id < count; ++id) {
    if (own.piece(id) == draft.piece(id)) continue;
    throw Error(ErrorCode::kInvalidArgument, draft_name + ": token " + std::to_string(id) + " is '" + draft.piece(id) +
                                                 "' here and '" + own.piece(id) + "' in " + name +
                                                 "; a draft model must have the same tokenizer");
  }
}

}  // namespace

Speculator::Speculator(const SpeculationWords& words, const ModelWords& model, const models::Tokenizer* tokenizer,
                       const CommonOptions& common, GenerateOptions& options) {
  options.lookup = words.looks_up();
  if (words.draft.empty()) return;
  ModelWords own = model;
  own.checkpoint = words.draft;
  draft_ = load_model(own, common);
  const auto draft_tokenizer = tokenizer_of(words.draft);
  if (tokenizer && draft_tokenizer) check_same(model.checkpoint, *tokenizer, words.draft, *draft_tokenizer);
  options.draft = &draft_->module();
}

}  // namespace halfbyte::cli
