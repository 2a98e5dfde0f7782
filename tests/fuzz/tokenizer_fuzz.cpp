// libFuzzer target (preset "fuzz"): whatever a tokenizer's file says, it is read or refused with an Error; what is read
// splits a text into tokens that stand for its bytes in order, and decodes them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/put_together.h"
#include "models/tokenizers/sentencepiece/encoder.h"

namespace {

using halfbyte::models::TokenSpan;

constexpr std::string_view kText = "Once <s> upon\n a  time, \u00e9\u0301\u212b \U0001F600\u2581 abc</s>";

void check_spans(const std::vector<TokenSpan>& tokens) {
  for (const TokenSpan& token : tokens) {
    if (token.begin > token.end || token.end > kText.size()) std::abort();
  }
}

void check_sentencepiece(std::string_view bytes) {
  const halfbyte::models::sentencepiece::Encoder encoder(bytes, "fuzz");
  std::vector<TokenSpan> tokens;
  halfbyte::models::Allowance allowance(kText.size());
  encoder.encode(kText, 0, true, allowance, [&](auto part) { tokens.insert(tokens.end(), part.begin(), part.end()); });
  check_spans(tokens);
  std::vector<std::int64_t> ids;
  for (const TokenSpan& token : tokens) ids.push_back(token.id);
  encoder.decode(ids, true);
}

void check_json(std::string_view text) {
  using namespace halfbyte::models;
  huggingface::VocabularyLists lists;
  const auto tree = huggingface::JsonReader("fuzz", &lists).read(text);
  const auto tokenizer = huggingface::put_together(tree, std::move(lists), "fuzz");
  check_spans(tokenizer->encode_spans(kText, SpecialTokens::kParse));
  tokenizer->decode(tokenizer->encode(kText), false);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    bytes.starts_with('{') ? check_json(bytes) : check_sentencepiece(bytes);
  } catch (const halfbyte::Error&) {
  }
  return 0;
}
