// The tokenizer and chat template of a checkpoint, as host programs have them.
#include <halfbyte/tokenizer.h>

#include <fstream>

#include "models/chat/chat_template.h"
#include "models/tokenizers/tokenizer.h"
#include "tests/catch.h"
#include "tests/loader/quantized.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

TEST_CASE("a host encodes and decodes texts with a checkpoint's tokenizer", "[tokenizer]") {
  const Tokenizer tokenizer(tests::quantized_tiny_llama());
  const auto own = models::load_tokenizer(tests::data("tiny-llama"));
  const std::string text = "Once upon a time</s>";
  TokenIds wanted = own->prefix();
  const TokenIds ids = own->encode(text);
  wanted.insert(wanted.end(), ids.begin(), ids.end());
  wanted.insert(wanted.end(), own->suffix().begin(), own->suffix().end());
  CHECK(tokenizer.encode(text) == wanted);
  CHECK(tokenizer.encode(text, SpecialSpelling::kText).size() > wanted.size());
  CHECK(tokenizer.decode(tokenizer.encode(text, SpecialSpelling::kText)) == text);
  CHECK(tokenizer.vocab_size() == own->vocab_size());
  CHECK(tokenizer.piece(2) == own->piece(2));
  CHECK_THROWS_AS(tokenizer.decode({-1}), Error);
  CHECK_THROWS_AS(tokenizer.decode({tokenizer.vocab_size()}), Error);
}

TEST_CASE("a host writes chats as a checkpoint's template has them", "[tokenizer]") {
  const tests::Scratch scratch;
  std::filesystem::copy(tests::data("tiny-llama"), scratch / "model");
  CHECK_THROWS_AS(Tokenizer(scratch / "model").encode_chat({{"user", "Hi"}}), Error);
  CHECK(Tokenizer(scratch / "model").chat_stop_tokens().empty());
  std::ofstream(scratch / "model" / "chat_template.jinja")
      << "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}";
  const Tokenizer tokenizer(scratch / "model");
  const TokenIds ids = tokenizer.encode_chat({{"system", "Be brief."}, {"user", "Hi"}});
  CHECK(tokenizer.decode(ids).find("<system>Be brief.<user>Hi") != std::string::npos);
  CHECK_THROWS_AS(tokenizer.encode_chat({}), Error);
  CHECK_THROWS_AS(tokenizer.encode_chat({{"pirate", "Arr"}}), Error);
  CHECK_THROWS_AS(tokenizer.encode_chat({{"user", "Hi"}, {"system", "late"}}), Error);
}

TEST_CASE("a checkpoint without a tokenizer says so", "[tokenizer]") {
  const tests::Scratch scratch;
  std::filesystem::create_directory(scratch / "bare");
  std::filesystem::copy(tests::data("tiny-llama") / "config.json", scratch / "bare" / "config.json");
  CHECK_THROWS_AS(Tokenizer(scratch / "bare"), Error);
  CHECK_THROWS_AS(Tokenizer(scratch / "nowhere"), Error);
}

}  // namespace
}  // namespace halfbyte
