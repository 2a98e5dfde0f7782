// Tokenizers of every kind, each with a text that it encodes and decodes; chat templates.
#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/chat/chat_family.h"
#include "models/chat/chat_template.h"
#include "models/chat/jinja/program.h"
#include "models/tokenizers/huggingface/put_together.h"
#include "models/tokenizers/sentencepiece/encoder.h"
#include "tests/fuzz/bundle.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/tokenizing.h"

namespace halfbyte::fuzz {
namespace {

using models::TokenSpan;

constexpr std::string_view kText =
    "Once <s> upon\n a  time, it's 2024: \u00e9\u0301\u212b \U0001F600\u2581 \xff\xe2 abc</s> <|im_end|>\t";

void check_spans(const std::vector<TokenSpan>& tokens, std::string_view text) {
  for (const TokenSpan& token : tokens) {
    require(token.begin <= token.end && token.end <= text.size(), "a token stands for bytes of the text");
  }
}

// Tokens by whose side a template's own strings stand.
class SomeTokenizer final : public models::Tokenizer {
 public:
  std::vector<TokenSpan> encode_spans(std::string_view text, models::SpecialTokens) const override {
    return {{1, 0, text.size()}};
  }
  std::string decode(const models::TokenIds&, bool) const override { return {}; }
  std::string piece(std::int64_t) const override { return {}; }
  bool is_special(std::int64_t) const override { return false; }
  std::optional<std::int64_t> id_of(std::string_view piece) const override {
    return piece.size() % 3 ? std::optional<std::int64_t>(static_cast<std::int64_t>(piece.size())) : std::nullopt;
  }
  const models::TokenIds& prefix() const override { return none_; }
  const models::TokenIds& suffix() const override { return none_; }
  std::int64_t vocab_size() const override { return 256; }

 private:
  models::TokenIds none_;
};

const models::Conversation& conversation() {
  using models::Speaker;
  static const models::Conversation out{{Speaker::kSystem, "Be <|im_end|> brief. "},
                                        {Speaker::kUser, " Hello \n"},
                                        {Speaker::kAssistant, "<think>\nhm</think>Hi "},
                                        {Speaker::kUser, ""}};
  return out;
}

void check_template(const models::ChatTemplate& chat) {
  chat.encode(conversation(), SomeTokenizer());
  chat.stop_tokens(SomeTokenizer());
}

}  // namespace

void check_tokenizer(const models::Tokenizer& tokenizer) {
  for (const auto special : {models::SpecialTokens::kParse, models::SpecialTokens::kAsText})
    check_spans(tokenizer.encode_spans(kText, special), kText);
  const models::TokenIds ids = tokenizer.encode(kText);
  for (const std::int64_t id : ids) {
    require(id >= 0 && id < tokenizer.vocab_size(), "an id is below the vocabulary's size");
    tokenizer.piece(id);
    tokenizer.is_special(id);
  }
  tokenizer.decode(ids, true);
  tokenizer.decode(ids, false);
  models::StreamingDecoder streaming(tokenizer, {});
  for (const std::int64_t id : ids) streaming.push(id);
  streaming.finish();
}

void fuzz_sentencepiece(std::string_view input) {
  const models::sentencepiece::Encoder encoder(input, "fuzz");
  constexpr std::string_view kPlain = "Once <s> upon\n a  time, \u00e9\u0301\u212b \U0001F600\u2581 abc</s>";
  std::vector<TokenSpan> tokens;
  models::Allowance allowance(kPlain.size());
  encoder.encode(kPlain, 0, true, allowance, [&](auto part) { tokens.insert(tokens.end(), part.begin(), part.end()); });
  check_spans(tokens, kPlain);
  models::TokenIds ids;
  for (const TokenSpan& token : tokens) ids.push_back(token.id);
  encoder.decode(ids, true);
}

void fuzz_tokenizer_json(std::string_view input) {
  models::huggingface::VocabularyLists lists;
  const auto tree = models::huggingface::JsonReader("fuzz", &lists).read(input);
  check_tokenizer(*models::huggingface::put_together(tree, std::move(lists), "fuzz"));
}

// tokenizer.model with its configuration, vocab.json with merges.txt, ranked tokens.
void fuzz_tokenizer_files(std::string_view input) {
  const auto tokenizer = models::load_tokenizer(folder_of(input).path());
  if (tokenizer) check_tokenizer(*tokenizer);
}

void fuzz_chat_text(std::string_view input) {
  const models::ChatFamily* family = models::recognise_chat_template(input);
  if (family) check_template(models::ChatTemplate(models::family_template_of(*family, input)));
}

void fuzz_chat_jinja(std::string_view input) {
  const nlohmann::ordered_json messages = {
      {{"role", "system"}, {"content", "Be <|im_end|> brief. "}},
      {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "a"}}}}},
      {{"role", "assistant"},
       {"content", "<think>\nhm</think>Hi "},
       {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", {{"x", 1.5}, {"y", nullptr}}}}}}}}},
      {{"role", "tool"}, {"content", "\u00e9\u6771"}}};
  const nlohmann::ordered_json yes = true;
  const models::jinja::Limits limits{.steps = 200'000, .held_bytes = 1 << 22, .output_bytes = 1 << 20};
  const models::jinja::Program program(input, "fuzz");
  const models::jinja::Text text = program.run(
      {{"messages", &messages}, {"tools", &messages}, {"add_generation_prompt", &yes}}, {.year = 2024}, limits);
  std::size_t done = 0;
  for (const models::jinja::Run& run : text.runs()) {
    require(run.begin == done && run.end > run.begin, "runs follow each other");
    done = run.end;
  }
  require(done == text.size(), "runs are the whole text");
}

void fuzz_chat_files(std::string_view input) {
  const Folder& folder = folder_of(input);
  models::generation_stop_tokens(folder.path());
  check_template(models::load_chat_template(folder.path(), SomeTokenizer()));
}

}  // namespace halfbyte::fuzz
