#include "loader/evaluated_text.h"

#include <algorithm>

#include <halfbyte/error.h>

#include "loader/files/printable.h"
#include "loader/files/tokenizer_directory.h"

namespace halfbyte {
namespace {

using TokenizerPtr = std::shared_ptr<const models::Tokenizer>;

TokenizerPtr tokenizer_in(const std::filesystem::path& checkpoint) {
  return models::load_tokenizer(files::TokenizerDirectory(checkpoint).path());
}

TokenIds tokens_of(const models::Tokenizer& tokenizer, const EvaluationRequest& request) {
  return tokenizer.encode(request.text,
                          request.parses_special ? models::SpecialTokens::kParse : models::SpecialTokens::kAsText);
}

void check_same(const EvaluationRequest& request, const TokenIds& ours, const TokenIds& theirs) {
  const auto [at, other] = std::ranges::mismatch(ours, theirs);
  if (at == ours.end() && other == theirs.end()) return;
  throw Error(ErrorCode::kInvalidArgument,
              files::printable_path(request.checkpoint) + " and " + files::printable_path(request.original) +
                  ": their tokenizers split the text differently, from token " + std::to_string(at - ours.begin()) +
                  " on; compare models of one tokenizer");
}

}  // namespace

EvaluatedText evaluated_text(const EvaluationRequest& request) {
  const TokenizerPtr ours = tokenizer_in(request.checkpoint);
  const TokenizerPtr theirs = request.original.empty() ? nullptr : tokenizer_in(request.original);
  EvaluatedText out{ours ? ours : theirs, {}, {}};
  if (!out.tokenizer) {
    throw Error(ErrorCode::kNotFound, files::printable_path(request.checkpoint) +
                                          ": no tokenizer there to read the text with; copy the original's files "
                                          "(tokenizer.json or tokenizer.model) beside the weights");
  }
  out.tokens = tokens_of(*out.tokenizer, request);
  if (ours && theirs) check_same(request, out.tokens, tokens_of(*theirs, request));
  const models::Tokenizer& tokenizer = *out.tokenizer;
  out.special = models::special_names(tokenizer, tokenizer.encode(request.text, models::SpecialTokens::kParse),
                                      tokenizer.encode(request.text, models::SpecialTokens::kAsText));
  return out;
}

}  // namespace halfbyte
