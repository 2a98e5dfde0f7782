// tokenizer.model: pieces, the bytes that they stand for, special tokens, and files that are broken.
#include "tests/catch.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <halfbyte/error.h>

#include "models/tokenizers/tokenizer.h"
#include "tests/models/tokenizers/sentencepiece_models.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using models::SpecialTokens;
using models::TokenIds;
using models::Tokenizer;
using tests::Scratch;
using tests::TestModel;
using Bytes = std::vector<std::pair<std::size_t, std::size_t>>;

std::unique_ptr<Tokenizer> open(const Scratch& scratch, const TestModel& model, const std::string& config = "") {
  tests::write_bytes(scratch / "tokenizer.model", model.bytes());
  if (!config.empty()) tests::write_bytes(scratch / "tokenizer_config.json", config);
  return models::load_tokenizer(scratch / "");
}

Bytes bytes_of(const Tokenizer& tokenizer, std::string_view text, SpecialTokens special = SpecialTokens::kParse) {
  Bytes bytes;
  for (const auto& span : tokenizer.encode_spans(text, special)) bytes.emplace_back(span.begin, span.end);
  return bytes;
}

// a b c and the space are pieces 3 to 6, merges follow; without pieces for bytes.
TestModel small_bpe() {
  TestModel model;
  for (const char* text : {"a", "b", "c", "\u2581"}) model.pieces.push_back({text, -10, 1});
  model.pieces.push_back({"ab", -2, 1});         // 7
  model.pieces.push_back({"bc", -1, 1});         // 8: before "ab"
  model.pieces.push_back({"\u2581a", -3, 1});    // 9
  model.pieces.push_back({"\u2581abc", -4, 1});  // 10
  model.pieces.push_back({"<|sys|>", 0, 4});     // 11: user-defined
  return model;
}

TestModel small_unigram() {
  TestModel model{.type = 1};
  for (const char* text : {"a", "b", "\u2581"}) model.pieces.push_back({text, -4, 1});  // 3 4 5
  model.pieces.push_back({"ab", -5, 1});                                                // 6
  model.pieces.push_back({"\u2581ab", -6, 1});                                          // 7
  model.pieces.push_back({"ba", -3, 1});                                                // 8
  return model;
}

TEST_CASE("sentencepiece: BPE merges the best pair first, then the leftmost", "[tokenizers]") {
  const Scratch scratch;
  const auto tokenizer = open(scratch, small_bpe());
  CHECK(tokenizer->encode("abc") == TokenIds{10});   // _a bc, then _abc
  CHECK(tokenizer->encode("ab") == TokenIds{6, 7});  // "ab" before "_a"
  CHECK(tokenizer->encode("a a") == TokenIds{9, 9});
  CHECK(tokenizer->encode("").empty());
  CHECK(bytes_of(*tokenizer, "abc a") == Bytes{{0, 3}, {3, 5}});
  CHECK(tokenizer->encode("<|sys|>a") == TokenIds{6, 11, 3});  // a user-defined symbol never merges
  CHECK(tokenizer->prefix() == TokenIds{1});
  CHECK(tokenizer->suffix().empty());
}

TEST_CASE("The names of special tokens that a text spells are counted", "[tokenizers]") {
  const auto names_in = [](const Tokenizer& tokenizer, const std::string& text) {
    return models::special_names(tokenizer, tokenizer.encode(text, SpecialTokens::kParse),
                                 tokenizer.encode(text, SpecialTokens::kAsText));
  };
  const Scratch scratch;
  const auto tokenizer = open(scratch, small_bpe(), R"({"unk_token": "<unk>"})");
  CHECK(names_in(*tokenizer, "abc x").count == 0);        // x is unknown, and spells nothing
  CHECK(names_in(*tokenizer, "a <|sys|> b").count == 0);  // user-defined, and a token in any case
  CHECK(names_in(*tokenizer, "a </s> b</s></s>").count == 3);
  CHECK(names_in(*tokenizer, "a </s> b").example == "</s>");
  CHECK(tokenizer->is_special(2));
  CHECK_FALSE(tokenizer->is_special(3));
}

TEST_CASE("sentencepiece: a run of unknown characters is one token", "[tokenizers]") {
  const Scratch scratch;
  const auto tokenizer = open(scratch, small_bpe());
  CHECK(tokenizer->encode("xyz a") == TokenIds{6, 0, 9});
  CHECK(bytes_of(*tokenizer, "x\u00e9z a") == Bytes{{0, 0}, {0, 4}, {4, 6}});
  CHECK(tokenizer->decode({6, 0, 9}) == " \u2047  a");
}

TEST_CASE("sentencepiece: unigram takes the best sum of scores", "[tokenizers]") {
  const Scratch scratch;
  const auto tokenizer = open(scratch, small_unigram());
  CHECK(tokenizer->encode("ab") == TokenIds{7});
  CHECK(tokenizer->encode("aba") == TokenIds{7, 3});      // -10, where _ a ba has -11
  CHECK(tokenizer->encode("abab") == TokenIds{7, 6});     // -11
  CHECK(tokenizer->encode("baba") == TokenIds{5, 8, 8});  // -10
  CHECK(bytes_of(*tokenizer, "xab") == Bytes{{0, 0}, {0, 1}, {1, 3}});
}

// Longer than what is split at once: tokens are those of the words, and each byte has one.
TEST_CASE("sentencepiece: a long text has the tokens of its words", "[tokenizers]") {
  for (const TestModel& model : {small_bpe(), small_unigram()}) {
    const Scratch scratch;
    const auto tokenizer = open(scratch, model);
    constexpr std::size_t kWords = 60'000;
    std::string text = "ab";
    for (std::size_t i = 1; i < kWords; ++i) text += " ab";
    const auto spans = tokenizer->encode_spans(text, SpecialTokens::kParse);
    const TokenIds word = tokenizer->encode("ab");
    REQUIRE(spans.size() == kWords * word.size());
    std::size_t end = 0;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (spans[i].id != word[i % word.size()] || spans[i].begin != end) FAIL("token " << i);
      end = spans[i].end;
    }
    CHECK(end == text.size());
    CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  }
}

TEST_CASE("sentencepiece: spaces that the model drops belong to no token or to the next", "[tokenizers]") {
  const Scratch scratch;
  TestModel model = small_bpe();
  model.removes_extra_spaces = true;
  const auto tokenizer = open(scratch, model);
  CHECK(tokenizer->encode("  a   a  ") == TokenIds{9, 9});
  CHECK(bytes_of(*tokenizer, "  a   a  ") == Bytes{{2, 3}, {3, 7}});
  CHECK(tokenizer->encode("   ").empty());
  CHECK(tokenizer->decode({9, 9}) == "a a");
}

TEST_CASE("sentencepiece: bytes stand for themselves, broken UTF-8 for U+FFFD", "[tokenizers]") {
  const Scratch scratch;
  TestModel model = small_bpe();
  model.add_byte_pieces();  // from 12 on
  const auto tokenizer = open(scratch, model);
  constexpr std::int64_t kByte = 12;
  CHECK(tokenizer->encode("\u00e9") == TokenIds{6, kByte + 0xC3, kByte + 0xA9});
  CHECK(bytes_of(*tokenizer, "\u00e9") == Bytes{{0, 0}, {0, 1}, {1, 2}});
  const TokenIds replacement = {kByte + 0xEF, kByte + 0xBF, kByte + 0xBD};
  // Two bytes of a character of three are one U+FFFD; F5 is one, and a byte that follows no beginning is one.
  for (const auto& [text, count] : {std::pair("\xE2\x82", 1), {"\xF5", 1}, {"\x80\x80", 2}, {"\xED\xA0\x80", 3}}) {
    TokenIds wanted = {6};
    for (int i = 0; i < count; ++i) wanted.insert(wanted.end(), replacement.begin(), replacement.end());
    CHECK(tokenizer->encode(text) == wanted);
  }
  CHECK(bytes_of(*tokenizer,
                 "\xE2\x82"
                 "a\xFF"
                 "a") == Bytes{{0, 0}, {0, 2}, {0, 2}, {0, 2}, {2, 3}, {3, 4}, {3, 4}, {3, 4}, {4, 5}});
  CHECK(tokenizer->decode({kByte + 0xC3, 3}) ==
        "\uFFFD"
        "a");
}

constexpr const char* kAdded =
    R"({"add_bos_token": false, "add_eos_token": true, "eos_token": {"content": "</s>"}, "unk_token": "<unk>",
  "added_tokens_decoder": {"20": {"content": "<|user|>", "special": true, "rstrip": true},
                           "22": {"content": "<tool>", "special": false, "lstrip": true},
                           "23": {"content": "ab", "special": false, "single_word": true}}, "legacy": )";

TEST_CASE("sentencepiece: special and added tokens are found in a text", "[tokenizers]") {
  const Scratch scratch;
  const auto tokenizer = open(scratch, small_bpe(), std::string(kAdded) + "true}");
  CHECK(tokenizer->prefix().empty());
  CHECK(tokenizer->suffix() == TokenIds{2});
  CHECK(tokenizer->encode("a<s>a") == TokenIds{9, 1, 9});  // each part begins with a space
  CHECK(tokenizer->encode("a<s>a", SpecialTokens::kAsText) == TokenIds{9, 0, 3});
  CHECK(tokenizer->encode("<unk>a") == TokenIds{0, 9});
  CHECK(tokenizer->encode("<|user|> \n a") == TokenIds{20, 9});
  CHECK(bytes_of(*tokenizer, "<|user|> \n a") == Bytes{{0, 8}, {11, 12}});
  CHECK(tokenizer->encode("a  <tool>") == TokenIds{9, 22});
  CHECK(tokenizer->encode("a<tool>", SpecialTokens::kAsText) == TokenIds{9, 22});  // added, not special
  CHECK(tokenizer->encode("ab c") == TokenIds{23, 6, 6, 5});
  CHECK(tokenizer->encode("abc") == TokenIds{10});  // no word by itself
  CHECK(tokenizer->vocab_size() == 24);
  CHECK(tokenizer->id_of("<tool>") == 22);
  CHECK(tokenizer->piece(20) == "<|user|>");
  CHECK(tokenizer->piece(21).empty());
  CHECK(tokenizer->decode({9, 2, 20, 22, 9}) == "a<tool>a");
  CHECK(tokenizer->decode({9, 20, 9, 2}, /*skip_special=*/false) == "a<|user|>a</s>");
  CHECK_THROWS_AS(tokenizer->decode({24}), Error);
  CHECK_THROWS_AS(tokenizer->piece(-1), Error);
}

TEST_CASE("sentencepiece: only the text begins with a space where legacy is false", "[tokenizers]") {
  const Scratch scratch;
  const auto tokenizer = open(scratch, small_bpe(), std::string(kAdded) + "false}");
  CHECK(tokenizer->encode("a<s>a a") == TokenIds{9, 1, 3, 9});
  CHECK(tokenizer->encode("<s>a") == TokenIds{1, 3});
  CHECK(tokenizer->encode("<tool>a") == TokenIds{6, 22, 3});  // a space before a token that is not special
  CHECK(tokenizer->decode({9, 1, 9}, /*skip_special=*/false) == "a<s> a");
}

TEST_CASE("sentencepiece: added_tokens.json and special_tokens_map.json are read", "[tokenizers]") {
  const Scratch scratch;
  tests::write_bytes(scratch / "added_tokens.json", R"({"<|im_end|>": 12, "<|x|>": 13})");
  tests::write_bytes(scratch / "special_tokens_map.json", R"({"additional_special_tokens": ["<|im_end|>"]})");
  const auto tokenizer = open(scratch, small_bpe());
  CHECK(tokenizer->encode("a<|im_end|><|x|>") == TokenIds{9, 12, 13});
  CHECK(tokenizer->decode({9, 12, 13}) == "a<|x|>");
}

TEST_CASE("sentencepiece: ChatGLM's tokens follow the pieces", "[tokenizers]") {
  for (const auto& [file, content] : {std::pair("config.json", R"({"model_type": "chatglm"})"),
                                      {"tokenizer_config.json", R"({"tokenizer_class": "ChatGLMTokenizer"})"}}) {
    const Scratch scratch;
    tests::write_bytes(scratch / file, content);
    const auto tokenizer = open(scratch, small_bpe());
    CHECK(tokenizer->prefix() == TokenIds{13, 15});  // [gMASK] sop
    CHECK(tokenizer->vocab_size() == 21);
    CHECK(tokenizer->id_of("[MASK]") == 12);
    CHECK(tokenizer->id_of("eop") == 16);
    CHECK(tokenizer->encode("<|user|>a[gMASK]") == TokenIds{18, 9, 13});
    CHECK(tokenizer->encode("sop") == TokenIds{6, 0});  // letters, in a text
    CHECK(tokenizer->decode({13, 15, 9, 19}) == "a");
    CHECK(tokenizer->decode({13, 15, 9}, /*skip_special=*/false) == "[gMASK]sopa");
  }
}

TEST_CASE("sentencepiece: the small model splits as SentencePiece does", "[tokenizers]") {
  const auto tokenizer = models::load_tokenizer(tests::data("tiny-llama"));
  REQUIRE(tokenizer);
  CHECK(tokenizer->encode("Once upon a time, \u00e9\U0001F600") ==
        TokenIds{417, 958, 319, 671, 261, 625, 973, 953, 198, 172, 243, 162, 155, 131});
  CHECK(tokenizer->decode(tokenizer->encode(" two  spaces\n")) == "two spaces\n");  // the model keeps one
}

ErrorCode refusal(const Scratch& scratch, const TestModel& model, const std::string& config = "") {
  try {
    open(scratch, model, config);
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("tokenizer") != std::string::npos);
    return error.code();
  }
  FAIL("was read");
  return ErrorCode::kIo;
}

TEST_CASE("sentencepiece: broken models and configurations are refused by name", "[tokenizers]") {
  const Scratch scratch;
  const auto refused = [&](auto change) {
    TestModel model = small_bpe();
    change(model);
    return refusal(scratch, model);
  };
  CHECK(refused([](TestModel& model) { model.pieces.clear(); }) == ErrorCode::kCorrupt);
  CHECK(refused([](TestModel& model) { model.pieces[0].type = 1; }) == ErrorCode::kCorrupt);  // no unknown
  CHECK(refused([](TestModel& model) { model.pieces[1].type = 2; }) == ErrorCode::kCorrupt);  // two
  CHECK(refused([](TestModel& model) { model.pieces[4].text = "a"; }) == ErrorCode::kCorrupt);
  CHECK(refused([](TestModel& model) { model.pieces[4].text = ""; }) == ErrorCode::kCorrupt);
  CHECK(refused([](TestModel& model) { model.pieces[4].score = INFINITY; }) == ErrorCode::kCorrupt);
  CHECK(refused([](TestModel& model) { model.byte_fallback = true; }) == ErrorCode::kCorrupt);
  CHECK(refused([](TestModel& model) { model.pieces.push_back({"<0xZZ>", 0, 6}); }) == ErrorCode::kCorrupt);
  CHECK(refused([](TestModel& model) { model.type = 4; }) == ErrorCode::kUnsupported);
  CHECK(refused([](TestModel& model) { model.charsmap = "\xff\xff\xff\x7f rules"; }) == ErrorCode::kCorrupt);
  for (const char* config : {"[]", "{", R"({"added_tokens_decoder": {"x": {"content": "a"}}})",
                             R"({"added_tokens_decoder": {"99999999999": {"content": "a"}}})",
                             R"({"added_tokens_decoder": {"-1": {"content": "a"}}})"}) {
    CHECK(refusal(scratch, small_bpe(), config) == ErrorCode::kCorrupt);
  }
}

// A search that left the rules' array would be seen by AddressSanitizer.
TEST_CASE("sentencepiece: normalisation rules that lead out of their array are refused", "[tokenizers]") {
  const Scratch scratch;
  TestModel model = small_bpe();
  model.charsmap = std::string("\0\x04\0\0", 4) + std::string(1024, '\0') + std::string("x\0", 2);
  CHECK(open(scratch, model)->encode("a") == TokenIds{9});  // no rules
  for (std::size_t unit = 0; unit < 256; unit += 51) {
    TestModel broken = model;
    broken.charsmap[4 + 4 * unit + 2] = '\x7f';  // an offset beyond the array
    CHECK(refusal(scratch, broken) == ErrorCode::kCorrupt);
  }
}

TEST_CASE("sentencepiece: a model cut anywhere is read or refused", "[tokenizers]") {
  const Scratch scratch;
  const std::string whole = small_bpe().bytes();
  int refused = 0;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    tests::write_bytes(scratch / "tokenizer.model", whole.substr(0, size));
    try {
      models::load_tokenizer(scratch / "")->encode("abc <s>");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kCorrupt);
      ++refused;
    }
  }
  CHECK(refused > static_cast<int>(whole.size()) / 2);
}

}  // namespace
}  // namespace halfbyte
