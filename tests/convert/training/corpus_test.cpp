// Files to sequences: what is read of each kind, how it is cut and packed, and what is refused.
#include "convert/training/corpus.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>

#include <halfbyte/error.h>

#include "convert/training/packing.h"
#include "models/tokenizers/tokenizer.h"
#include "tests/catch.h"
#include "tests/places.h"

namespace halfbyte::convert {
namespace {

using training::kUnscored;
using training::Sequence;

constexpr std::int64_t kVocabSize = 1024;

// tiny-llama's tokenizer, and files that are read by it.
class Texts {
 public:
  std::filesystem::path file(const std::string& name, const std::string& text) const {
    std::ofstream(scratch_ / name, std::ios::binary) << text;
    return scratch_ / name;
  }
  Corpus read(const std::string& name, const std::string& text, std::int64_t context = 64, bool packs = true) const {
    return read_corpus(file(name, text), {.tokenizer = tests::data("tiny-llama"),
                                          .vocab_size = kVocabSize,
                                          .context = context,
                                          .packs = packs,
                                          .chat_template = "llama2"});
  }
  std::string refusal(const std::string& name, const std::string& text, ErrorCode code) const {
    try {
      read(name, text);
      return "none";
    } catch (const Error& error) {
      CHECK(error.code() == code);
      return error.what();
    }
  }
  const models::Tokenizer& tokenizer() const { return *tokenizer_; }
  models::TokenIds ids(const std::string& text) const {
    models::TokenIds out = tokenizer_->prefix();
    const models::TokenIds more = tokenizer_->encode(text, models::SpecialTokens::kAsText);
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }

 private:
  tests::Scratch scratch_;
  std::unique_ptr<models::Tokenizer> tokenizer_ = models::load_tokenizer(tests::data("tiny-llama"));
};

bool is_sound(const Sequence& each, std::int64_t context) {
  std::int64_t sum = 0;
  for (const std::int64_t length : each.lengths) sum += length;
  return sum == std::ssize(each.tokens) && each.tokens.size() == each.labels.size() && sum < context &&
         std::ranges::all_of(each.lengths, [](std::int64_t length) { return length > 0; }) &&
         std::ranges::any_of(each.labels, [](std::int64_t label) { return label != kUnscored; });
}

Sequence whole(const models::TokenIds& ids, std::size_t unscored = 0) {
  Sequence out{{ids.begin(), ids.end() - 1}, {ids.begin() + 1, ids.end()}, {std::ssize(ids) - 1}};
  std::fill(out.labels.begin(), out.labels.begin() + static_cast<std::ptrdiff_t>(unscored), kUnscored);
  return out;
}

std::string said(const Corpus& corpus) {
  std::string out;
  for (const Text& note : corpus.notes) out += note.str() + "\n";
  return out;
}

std::string text_of_words(int count) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += (i % 11 == 10 ? ".\n" : "") + std::string(" word") + std::to_string(i * i % 97);
  return out;
}

}  // namespace

TEST_CASE("a plain text is cut into windows that begin with what stands before a text", "[corpus]") {
  const Texts texts;
  const std::string text = text_of_words(60);
  const models::TokenIds ids = texts.ids(text);
  REQUIRE(texts.tokenizer().prefix().size() == 1);
  const Corpus read = texts.read("a.txt", text, 32);
  CHECK(read.documents == 1);
  CHECK(read.scored == std::ssize(ids) - 1);
  CHECK(read.hash.size() == 32);
  CHECK(said(read).empty());
  models::TokenIds joined;
  for (const Sequence& each : read.sequences) {
    CHECK(is_sound(each, 32));
    CHECK(each.tokens.front() == ids.front());
    CHECK(std::ranges::count(each.labels, kUnscored) == 0);
    joined.insert(joined.end(), each.labels.begin(), each.labels.end());
  }
  CHECK(joined == models::TokenIds(ids.begin() + 1, ids.end()));
  CHECK(std::ssize(read.sequences) == (std::ssize(ids) - 1 + 30) / 31);
}

TEST_CASE("texts end with the token that ends one, and completions alone are scored", "[corpus]") {
  const Texts texts;
  const std::int64_t end = *texts.tokenizer().id_of("</s>");
  const Corpus read = texts.read(
      "a.jsonl", "{\"text\": \"the ship\"}\n\n{\"prompt\": \"the\", \"completion\": \" ship sailed\"}", 64, false);
  REQUIRE(read.sequences.size() == 2);
  models::TokenIds ids = texts.ids("the ship");
  ids.push_back(end);
  CHECK(read.sequences[0] == whole(ids));
  ids = texts.ids("the ship sailed");
  ids.push_back(end);
  CHECK(read.sequences[1] == whole(ids, texts.ids("the").size() - 1));
  CHECK(read.scored == std::ssize(read.sequences[0].labels) + std::ssize(ids) - std::ssize(texts.ids("the")));
  CHECK(texts.read("b.json", "[{\"text\": \"the ship\"}]", 64, false).sequences[0] == read.sequences[0]);
  const Corpus spelt = texts.read("c.jsonl", "{\"text\": \"the</s>ship\"}");
  CHECK(std::ranges::count(spelt.sequences[0].labels, end) == 1);
  CHECK(said(spelt).find("(</s>)") != std::string::npos);
}

TEST_CASE("the answers of a conversation are scored in the model's own tokens", "[corpus]") {
  const Texts texts;
  const std::int64_t end = *texts.tokenizer().id_of("</s>");
  const Corpus read = texts.read("a.jsonl",
                                 "{\"messages\": [{\"role\": \"user\", \"content\": \"the ship?\"}, "
                                 "{\"role\": \"assistant\", \"content\": \"It sailed.\"}]}");
  REQUIRE(read.sequences.size() == 1);
  const Sequence& all = read.sequences.front();
  models::TokenIds scored;
  std::ranges::copy_if(all.labels, std::back_inserter(scored), [](std::int64_t id) { return id != kUnscored; });
  CHECK(all.tokens.front() == texts.ids("").front());
  CHECK(scored.back() == end);
  CHECK_THAT(texts.tokenizer().decode(scored), Catch::StartsWith("It sailed."));
  CHECK(texts.tokenizer().decode({all.tokens.begin(), all.tokens.end() - std::ssize(scored) + 1}) ==
        "[INST] the ship? [/INST]");
}

TEST_CASE("token ids are taken as they are, with labels as transformers has them", "[corpus]") {
  const Texts texts;
  const Corpus read = texts.read("a.jsonl",
                                 "[5, 6, 7]\n{\"input_ids\": [8, 9, 10, 11], \"labels\": [8, -100, 700, -100]}\n"
                                 "{\"input_ids\": [3]}\n{\"input_ids\": [3, 4], \"labels\": [3, -100]}",
                                 8, false);
  REQUIRE(read.sequences.size() == 2);
  CHECK(read.sequences[0] == Sequence{{5, 6}, {6, 7}, {2}});
  CHECK(read.sequences[1] == Sequence{{8, 9}, {kUnscored, 700}, {2}});
  CHECK(read.documents == 4);
  CHECK(read.scored == 3);
  CHECK(said(read).find("documents: 2 of 4 are left out") != std::string::npos);
  const Corpus cut = texts.read("b.jsonl", "[1, 2, 3, 4, 5, 6, 7, 8]", 4);
  REQUIRE(cut.sequences.size() == 3);  // nothing stands before ids: a piece begins with the token before it
  CHECK(cut.sequences[1] == Sequence{{4, 5, 6}, {5, 6, 7}, {3}});
  CHECK(cut.scored == 7);
  CHECK(said(cut).find("1 of 1 have more than 4 tokens and are cut") != std::string::npos);
}

TEST_CASE("short documents are packed, each whole and once, and the same every time", "[corpus]") {
  std::vector<Sequence> pieces;
  std::map<std::int64_t, std::int64_t> wanted;  // size by first token
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < 500; ++i) {
    const std::int64_t size = 1 + i * i * 7 % 90;
    pieces.push_back({std::vector<std::int64_t>(static_cast<std::size_t>(size), i),
                      std::vector<std::int64_t>(static_cast<std::size_t>(size), i + 1),
                      {size}});
    wanted[i] = size;
    tokens += size;
  }
  const std::vector<Sequence> packed = pack(pieces, 100);
  CHECK((packed == pack(pieces, 100)));
  std::int64_t first = -1;
  for (const Sequence& each : packed) {
    CHECK(is_sound(each, 101));
    CHECK(each.tokens.front() > first);
    first = each.tokens.front();
    std::size_t at = 0;
    for (const std::int64_t length : each.lengths) {
      const std::int64_t name = each.tokens[at];
      CHECK(wanted.at(name) == length);
      wanted.erase(name);
      at += static_cast<std::size_t>(length);
    }
  }
  CHECK(wanted.empty());
  // No two of more than half the room share one: at least that many sequences there are. 3.4 % more are made.
  const auto large = std::ranges::count_if(pieces, [](const Sequence& one) { return one.tokens.size() > 50; });
  CHECK(std::ssize(packed) >= large);
  CHECK(static_cast<double>(packed.size()) < 1.04 * static_cast<double>(large));
  CHECK(static_cast<double>(packed.size()) < 1.05 * static_cast<double>(tokens) / 100);
}

TEST_CASE("what is no document is refused with its line", "[corpus]") {
  const Texts texts;
  const std::pair<const char*, const char*> bad[] = {
      {"{", "not JSON"},
      {"{\"input_ids\": [1, 1024]}", "1024 is no token id"},
      {"[]", "no list of token ids"},
      {"{\"input_ids\": [1, 2], \"labels\": [1]}", "\"labels\" is no list"},
      {"{\"input_ids\": [1, 2], \"labels\": [1, -1]}", "\"labels\" is no list"},
      {"{\"prompt\": \"a\"}", "none of {\"text\": ..}"},
      {"{\"text\": 3}", "a text is none: 3"},
      {"{\"messages\": []}", "no list of messages"},
      {"{\"messages\": [{\"role\": 1}]}", "a message is"},
      {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}", "an answer stands first"},
      {"{\"text\": \"a\", \"text\": \"b\"}", "stands twice"},
  };
  for (const auto& [line, problem] : bad) {
    INFO(line);
    const std::string said =
        texts.refusal("a.jsonl", std::string("{\"text\": \"a\"}\n\n") + line + "\n", ErrorCode::kCorrupt);
    CHECK(said.find("a.jsonl: line 3: ") != std::string::npos);
    CHECK(said.find(problem) != std::string::npos);
  }
  CHECK(texts.refusal("a.json", "[[1, 2], [7, -1]]", ErrorCode::kCorrupt).find("item 2: -1 is no token id") !=
        std::string::npos);
  for (const char* name : {"a.txt", "a.jsonl"})
    CHECK(texts.refusal(name, "", ErrorCode::kInvalidArgument).find("nothing to learn") != std::string::npos);
  CHECK(texts.refusal("a.jsonl", "{\"text\": \"\"}\n[1]", ErrorCode::kInvalidArgument).find("nothing to learn") !=
        std::string::npos);
  CHECK_THROWS_AS(texts.read("a.txt", "a", 1), Error);
}

}  // namespace halfbyte::convert
