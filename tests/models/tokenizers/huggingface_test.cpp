// tokenizer.json against what Hugging Face's library makes of it, component by component, and against hostile files.
#include "tests/catch.h"

#include <fstream>
#include <string>
#include <vector>

#include <halfbyte/error.h>
#include <nlohmann/json.hpp>

#include "models/tokenizers/huggingface/multi_pattern.h"
#include "models/tokenizers/huggingface/regex.h"
#include "models/tokenizers/huggingface/tokenizer.h"
#include "models/tokenizers/huggingface/unicode.h"
#include "tests/places.h"

using namespace halfbyte;
using namespace halfbyte::models;
using nlohmann::json;

namespace {

// A tokenizer of one's own: words of the text itself are tokens, by WordLevel with an unknown token.
json word_level(std::vector<std::string> words) {
  json vocab = {{"<unk>", 0}};
  for (const std::string& word : words) vocab[word] = vocab.size();
  return {{"model", {{"type", "WordLevel"}, {"unk_token", "<unk>"}, {"vocab", vocab}}}};
}

json small_bpe() {
  return {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}, {"abab", 3}}}, {"merges", {"a b", "ab ab"}}};
}

std::unique_ptr<Tokenizer> loaded(const std::string& text) {
  tests::Scratch scratch;
  std::ofstream(scratch / "tokenizer.json") << text;
  return load_tokenizer_json(scratch / "tokenizer.json");
}

std::unique_ptr<Tokenizer> loaded(const json& description) { return loaded(description.dump()); }

std::string error_of(const std::string& text, ErrorCode code) {
  try {
    loaded(text);
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "no error";
}

std::vector<std::string> cut(const json& pre_tokenizer, const std::string& text) {
  json description = word_level({});
  description["pre_tokenizer"] = pre_tokenizer;
  std::vector<std::string> words;
  for (const TokenSpan& token : loaded(description)->encode_spans(text, SpecialTokens::kParse))
    words.push_back(text.substr(token.begin, token.end - token.begin));
  return words;
}

json split(const char* regex, const char* behavior) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}, {"invert", false}};
}

}  // namespace

TEST_CASE("tokenizer.json gives the library's ids and decodings", "[tokenizers]") {
  const auto fixtures = tests::shared("fixtures/tokenizers");
  if (!fixtures) HALFBYTE_SKIP("the four larger tokenizers of ../shared/fixtures/tokenizers are not here");
  for (const char* kind : {"gpt2", "llama2-style", "llama3-style", "qwen2-style"}) {
    const auto tokenizer = load_tokenizer(*fixtures / kind);
    std::ifstream lines(*fixtures / kind / "expected.jsonl");
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const json expected = json::parse(line);
      INFO(kind << ": " << expected.at("text"));
      const TokenIds ids = tokenizer->encode(expected.at("text").get<std::string>());
      CHECK(ids == expected.at("ids_no_special").get<TokenIds>());
      TokenIds all = tokenizer->prefix();
      all.insert(all.end(), ids.begin(), ids.end());
      all.insert(all.end(), tokenizer->suffix().begin(), tokenizer->suffix().end());
      CHECK(all == expected.at("ids").get<TokenIds>());
      CHECK(tokenizer->decode(all, true) == expected.at("decoded").get<std::string>());
    }
    CHECK(count > 20);
  }
}

TEST_CASE("Delimiters are treated as they are asked to be", "[tokenizers]") {
  using Words = std::vector<std::string>;
  const std::string text = "the-final--countdown";
  CHECK(cut(split("-", "Removed"), text) == Words{"the", "final", "countdown"});
  CHECK(cut(split("-", "Isolated"), text) == Words{"the", "-", "final", "-", "-", "countdown"});
  CHECK(cut(split("-", "MergedWithPrevious"), text) == Words{"the-", "final-", "-", "countdown"});
  CHECK(cut(split("-", "MergedWithNext"), text) == Words{"the", "-final", "-", "-countdown"});
  CHECK(cut(split("-", "Contiguous"), text) == Words{"the", "-", "final", "--", "countdown"});
}

TEST_CASE("Regular expressions mean what Oniguruma reads", "[tokenizers]") {
  using Words = std::vector<std::string>;
  // U+180E is no white space, U+0085 is; PCRE2 by itself thinks otherwise of the first.
  CHECK(cut(split("\\s", "Removed"), "a\u180eb\u0085c") == Words{"a\u180eb", "c"});
  CHECK(cut(split("[a-f&&[^cd]]+", "Removed"), "xabcdex") == Words{"x", "cd", "x"});
  CHECK(cut(split("[[:digit:]x]", "Removed"), "a1bxc") == Words{"a", "b", "c"});
  CHECK(cut(split("(?m:a.b)", "Removed"), "1a\nb2") == Words{"1", "2"});
  CHECK(cut(split("a{,2}c", "Removed"), "1aac2c3") == Words{"1", "2", "3"});
  CHECK(cut(split("\\p{Lu}", "Removed"), "a\U00010D50b") == Words{"a", "b"});  // Unicode 16
  CHECK(cut(split("\\h+", "Removed"), "xfFy") == Words{"x", "y"});
}

TEST_CASE("Spans are of the bytes that were given", "[tokenizers]") {
  json description = word_level({"e\u0301"});
  description["normalizer"] = {{"type", "NFC"}};
  description["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  const auto tokenizer = loaded(description);
  const auto spans = tokenizer->encode_spans("\xFF\xE2\x82 \u00e9 x", SpecialTokens::kParse);
  REQUIRE(spans.size() == 3);
  CHECK(spans[0].begin == 0);
  CHECK(spans[0].end == 3);  // two broken characters are two U+FFFD
  CHECK(spans[1].begin == 4);
  CHECK(spans[1].end == 6);
  CHECK(spans[2].begin == 7);
}

TEST_CASE("Special tokens can stay text", "[tokenizers]") {
  json description = {{"model", small_bpe()}};
  description["added_tokens"] = {{{"id", 4}, {"content", "<a>"}, {"special", true}, {"normalized", false}},
                                 {{"id", 5}, {"content", "bb"}, {"special", false}, {"normalized", false}}};
  const auto tokenizer = loaded(description);
  CHECK(tokenizer->encode("ab<a>bb", SpecialTokens::kParse) == TokenIds{2, 4, 5});
  CHECK(tokenizer->encode("ab<a>bb", SpecialTokens::kAsText) == TokenIds{2, 0, 5});
  CHECK(tokenizer->decode({2, 4}, true) == "ab");
  CHECK(tokenizer->decode({2, 4}, false) == "ab <a>");
  CHECK_THROWS_AS(tokenizer->decode({6}), Error);
}

TEST_CASE("A long word is merged as a short one", "[tokenizers]") {
  const auto tokenizer = loaded(json{{"model", small_bpe()}});
  std::string cut_text, whole_text;
  TokenIds cut_ids;
  for (int i = 0; i < 5000; ++i) {
    cut_text += "ababb";  // no merge reaches from b to b
    cut_ids.insert(cut_ids.end(), {3, 1});
    whole_text += "abab";
  }
  const bool cut_is_right = tokenizer->encode(cut_text) == cut_ids;
  const bool whole_is_right = tokenizer->encode(whole_text) == TokenIds(5000, 3);
  CHECK(cut_is_right);
  CHECK(whole_is_right);
}

TEST_CASE("A growing text is printed by whole characters", "[tokenizers]") {
  json description = {
      {"model", {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", {{"a", 0}}}, {"merges", json::array()}}}};
  static constexpr char kDigits[] = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte)
    description["model"]["vocab"][std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">"] = byte + 1;
  description["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
  const auto tokenizer = loaded(description);
  std::string text, printed;
  for (int i = 0; i < 200; ++i) text += i % 7 == 0 ? "a\u00e9" : "\u53eb\U0001F600";
  StreamingDecoder decoder(*tokenizer);
  bool is_whole = true;
  for (const std::int64_t id : tokenizer->encode(text)) {
    const std::string fresh = decoder.push(id);
    is_whole = is_whole && incomplete_utf8_tail(fresh) == 0;
    printed += fresh;
  }
  CHECK(is_whole);
  CHECK(printed + decoder.finish() == text);
}

TEST_CASE("Hostile tokenizer files are refused by name", "[tokenizers]") {
  const std::string deep(100'000, '[');
  CHECK(error_of(deep, ErrorCode::kCorrupt).find("nested deeper") != std::string::npos);
  CHECK(error_of("{\"model\":", ErrorCode::kCorrupt).find("not JSON") != std::string::npos);
  CHECK(error_of("{}", ErrorCode::kCorrupt).find("model") != std::string::npos);
  json far = {{"model", small_bpe()}};
  far["model"]["vocab"]["far"] = 4'000'000'000U;
  CHECK(error_of(far.dump(), ErrorCode::kCorrupt).find("4000000000") != std::string::npos);
  json merge = {{"model", small_bpe()}};
  merge["model"]["merges"] = {"a zz"};
  CHECK(error_of(merge.dump(), ErrorCode::kCorrupt).find("\"zz\" is not in the vocabulary") != std::string::npos);
  json three = {{"model", small_bpe()}};
  three["model"]["merges"] = {"a b a"};
  CHECK(error_of(three.dump(), ErrorCode::kCorrupt).find("merges[0]") != std::string::npos);
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    json unknown = {{"model", small_bpe()}, {part, {{"type", "Fancy"}}}};
    CHECK(error_of(unknown.dump(), ErrorCode::kUnsupported).find("Fancy") != std::string::npos);
  }
  json charsmap = {{"model", small_bpe()},
                   {"normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "/////w=="}}}};
  CHECK(error_of(charsmap.dump(), ErrorCode::kCorrupt).find("trie longer than itself") != std::string::npos);
}

TEST_CASE("A regular expression that never ends meets a limit", "[tokenizers]") {
  json description = word_level({});
  description["pre_tokenizer"] = split("(a|aa|a?a)+$", "Isolated");
  const auto tokenizer = loaded(description);
  CHECK_THROWS_WITH(tokenizer->encode(std::string(5000, 'a') + "b"), Catch::Contains("limit"));
}

TEST_CASE("Many strings are found leftmost and longest", "[tokenizers]") {
  using huggingface::MultiPattern;
  const MultiPattern patterns({"ab", "abcd", "bc", "d", "zz"});
  const std::string text = "abcabcdzzz" + std::string(70'000, 'x') + "bcd";
  MultiPattern::Scan scan(patterns, text);
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (MultiPattern::Found next{}; scan.next(next);) found.emplace_back(next.begin, next.end);
  CHECK(found ==
        std::vector<std::pair<std::size_t, std::size_t>>{{0, 2}, {3, 7}, {7, 9}, {70'010, 70'012}, {70'012, 70'013}});
}

TEST_CASE("vocab.json with merges.txt is GPT-2's kind", "[tokenizers]") {
  tests::Scratch scratch;
  std::ofstream(scratch / "vocab.json") << R"({"a": 0, "b": 1, "\u0120": 2, "ab": 3, "\u0120ab": 4, "<|end|>": 5})";
  std::ofstream(scratch / "merges.txt") << "#version: 0.2\na b\n\u0120 ab\n";
  std::ofstream(scratch / "tokenizer_config.json")
      << R"({"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|end|>", "add_prefix_space": false})";
  const auto tokenizer = load_tokenizer(scratch / "");
  REQUIRE(tokenizer);
  CHECK(tokenizer->encode("ab ab<|end|>") == TokenIds{3, 4, 5});
  CHECK(tokenizer->decode({3, 4, 5}, true) == "ab ab");
  CHECK(tokenizer->id_of("\u0120ab") == 4);
}

TEST_CASE("Added tokens that are no tokens are refused by name", "[tokenizers]") {
  const auto error_with = [](const std::string& decoder,
                             const std::vector<std::pair<std::string, std::string>>& files) {
    const tests::Scratch scratch;
    std::ofstream(scratch / "tokenizer_config.json")
        << R"({"bos_token": "a", "added_tokens_decoder": )" + decoder + "}";
    for (const auto& [name, text] : files) std::ofstream(scratch / name) << text;
    try {
      load_tokenizer(scratch / "");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kCorrupt);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  for (const char* decoder :
       {R"({"5": "x"})", R"({"5": 7})", R"({"5": []})", R"({"5": [1]})", R"({"5": {"content": 3}})",
        R"({"5": {"content": ["a"]}})", R"({"5": {}})", R"("x")", "[]", "7"}) {
    INFO(decoder);
    CHECK_THAT(error_with(decoder, {{"vocab.json", R"({"a": 0, "b": 1, "ab": 2})"}, {"merges.txt", "a b"}}),
               Catch::Contains("added_tokens_decoder"));
    CHECK_THAT(error_with(decoder, {{"tokenizer.model", "YQ== 0\nYg== 1"}}), Catch::Contains("added_tokens_decoder"));
  }
}

TEST_CASE("marks of newer Unicode versions join the letter before them, and nothing joins a control", "[tokenizers]") {
  const auto breaks = [](char32_t before, char32_t after) {
    std::int32_t state = 0;
    return huggingface::is_grapheme_break(before, after, state);
  };
  CHECK(breaks('A', 'B'));
  CHECK_FALSE(breaks('A', 0x301));
  CHECK_FALSE(breaks('A', 0x1AE8));   // Unicode 17
  CHECK_FALSE(breaks('A', 0x113B8));  // Unicode 16
  CHECK(breaks('A', 0x1ADE));         // between two ranges
  CHECK(breaks('\n', 0x1AE8));
}
