// tests/data/tokenizers: a small tokenizer of each kind against what the libraries made of the same texts with it.
// tools/compat/tokenizer_fixtures.py writes them, and says what is in each file.
#include "tests/catch.h"

#include <atomic>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/tokenizers/huggingface/decoder.h"
#include "models/tokenizers/huggingface/model.h"
#include "models/tokenizers/huggingface/normalizer.h"
#include "models/tokenizers/huggingface/post_processor.h"
#include "models/tokenizers/huggingface/pre_tokenizer.h"
#include "models/tokenizers/tokenizer.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;
using models::SpecialTokens;
using models::TokenIds;
using models::Tokenizer;

json read(const fs::path& file) {
  std::ifstream in(file);
  return json::parse(in);
}

fs::path folder() { return tests::data("tokenizers"); }

// Valid UTF-8 first, then what is not.
std::vector<std::string> texts() {
  const json all = read(folder() / "texts.json");
  std::vector<std::string> texts = all.at("texts");
  for (const std::string hex : all.at("broken")) {
    texts.emplace_back();
    for (std::size_t i = 0; i < hex.size(); i += 2)
      texts.back() += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return texts;
}

struct Fixture {
  std::string name;
  json expected;
  json tree;  // the tokenizer.json, where there is one
};

Fixture whole(const fs::path& path) {
  const fs::path tree = path / "tokenizer.json";
  return {path.filename(), read(path / "expected.json"), fs::exists(tree) ? read(tree) : json()};
}

// Of the model, single options are changed (null: left out); all else as a whole.
json changed(json tree, const json& changes) {
  for (const auto& [key, value] : changes.items())
    if (key != "model") tree[key] = value;
  const json options = changes.value("model", json::object());
  for (const auto& [key, value] : options.items()) {
    tree["model"][key] = value;
    if (value.is_null()) tree["model"].erase(key);
  }
  return tree;
}

Fixture changed(const fs::path& path) {
  json expected = read(path);
  const Fixture like = whole(folder() / expected.at("like").get<std::string>());
  const json& others = like.expected.at("rows");
  REQUIRE(expected.at("rows").size() == others.size());
  for (std::size_t i = 0; i < others.size(); ++i) {
    json row = others[i];
    row.update(expected["rows"][i]);
    expected["rows"][i] = row;
  }
  return {path.stem(), expected, changed(like.tree, expected.at("changes"))};
}

std::vector<Fixture> fixtures() {
  std::vector<Fixture> all;
  for (const auto& entry : fs::directory_iterator(folder()))
    if (entry.path().filename() != "texts.json")
      all.push_back(entry.is_directory() ? whole(entry.path()) : changed(entry.path()));
  return all;
}

std::unique_ptr<Tokenizer> open(const Fixture& fixture) {
  if (!fixture.expected.contains("like")) return models::load_tokenizer(folder() / fixture.name);
  const tests::Scratch scratch;
  std::ofstream(scratch / "tokenizer.json") << fixture.tree;
  return models::load_tokenizer(scratch / "");
}

bool is_continuation(const std::string& text, std::size_t at) { return at < text.size() && (text[at] & 0xC0) == 0x80; }

// First and last + 1 of each, widened to whole characters.
std::vector<std::size_t> spans_of(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::size_t> spans;
  for (auto [id, begin, end] : tokenizer.encode_spans(text, SpecialTokens::kParse)) {
    const bool is_empty = begin == end;
    while (is_continuation(text, begin)) --begin;
    while (!is_empty && is_continuation(text, end)) ++end;
    spans.insert(spans.end(), {begin, is_empty ? begin : end});
  }
  return spans;
}

TokenIds joined(const TokenIds& prefix, TokenIds ids, const TokenIds& suffix) {
  ids.insert(ids.begin(), prefix.begin(), prefix.end());
  ids.insert(ids.end(), suffix.begin(), suffix.end());
  return ids;
}

void check_decoding(const Tokenizer& tokenizer, const TokenIds& ids, const json& row, bool knows_special) {
  CHECK(tokenizer.decode(ids, true) == row.at("text").get<std::string>());
  if (!knows_special) return;
  const json& with_special = row.at("with_special").is_null() ? row.at("text") : row.at("with_special");
  CHECK(tokenizer.decode(ids, false) == with_special.get<std::string>());
}

void check(const Fixture& fixture, const std::vector<std::string>& texts) {
  const auto tokenizer = open(fixture);
  REQUIRE(tokenizer);
  const json& expected = fixture.expected;
  const bool as_text = expected.at("special_as_text");
  CHECK(tokenizer->prefix() == expected.at("prefix").get<TokenIds>());
  CHECK(tokenizer->suffix() == expected.at("suffix").get<TokenIds>());
  REQUIRE(expected.at("rows").size() == texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const json& row = expected["rows"][i];
    INFO("text " << i << ": " << json(texts[i]).dump(-1, ' ', true, json::error_handler_t::replace));
    const TokenIds ids = tokenizer->encode(texts[i], as_text ? SpecialTokens::kAsText : SpecialTokens::kParse);
    CHECK(ids == row.at("ids").get<TokenIds>());
    check_decoding(*tokenizer, joined(tokenizer->prefix(), ids, tokenizer->suffix()), row, !as_text);
    if (!row.at("spans").is_null())
      CHECK(spans_of(*tokenizer, texts[i]) == row["spans"].get<std::vector<std::size_t>>());
  }
  for (const json& list : expected.at("lists")) check_decoding(*tokenizer, list.at("ids"), list, !as_text);
}

// What the fixtures' tokenizer.json have: "decoder" -> types; "decoder.Strip.start" -> values of true and false;
// "behavior" -> how delimiters are treated.
using Seen = std::map<std::string, std::set<std::string>>;

void note(const json& value, const std::string& component, Seen& seen) {
  if (!value.is_structured()) return;
  if (value.is_array()) {
    for (const json& item : value) note(item, component, seen);
    return;
  }
  const std::string type = value.contains("type") ? value["type"].get<std::string>() : "";
  if (!type.empty()) seen[component].insert(type);
  for (const auto& [key, field] : value.items()) {
    const bool has_kind = !type.empty() || component == "added_tokens";  // old models have no type
    if (field.is_boolean() && has_kind) seen[component + "." + type + "." + key].insert(field.dump());
    if (field.is_string() && key != "type") seen[key].insert(field.get<std::string>());
    if (key != "vocab" && key != "merges" && key != "special_tokens") note(field, component, seen);
  }
}

Seen seen_in(const std::vector<Fixture>& fixtures) {
  Seen seen;
  for (const Fixture& fixture : fixtures) {
    if (!fixture.tree.is_object()) continue;
    for (const char* component : {"added_tokens", "normalizer", "pre_tokenizer", "model", "post_processor", "decoder"})
      note(fixture.tree.value(component, json()), component, seen);
  }
  return seen;
}

TEST_CASE("Small tokenizers of every kind give the libraries' ids, spans and decodings", "[tokenizers]") {
  const auto all = fixtures();
  const auto lines = texts();
  REQUIRE(all.size() > 60);
  REQUIRE(lines.size() > 20);
  for (const Fixture& fixture : all) {
    INFO(fixture.name);
    check(fixture, lines);
  }
}

TEST_CASE("Every kind of step that a tokenizer.json can have is in a fixture", "[tokenizers]") {
  using namespace models::huggingface;
  const Seen seen = seen_in(fixtures());
  const std::pair<const char*, std::vector<std::string_view>> tables[] = {{"normalizer", normalizer_types()},
                                                                          {"pre_tokenizer", pre_tokenizer_types()},
                                                                          {"model", model_types()},
                                                                          {"post_processor", post_processor_types()},
                                                                          {"decoder", decoder_types()},
                                                                          {"behavior", delimiter_behaviors()},
                                                                          {"prepend_scheme", prepend_schemes()}};
  for (const auto& [component, types] : tables) {
    REQUIRE_FALSE(types.empty());
    for (const std::string_view type : types) {
      INFO(component << ": " << type << " is in no fixture; tools/compat/fixture_kinds.py makes them");
      CHECK(seen.at(component).contains(std::string(type)));
    }
  }
}

TEST_CASE("Many threads encode and decode with one tokenizer at once", "[tokenizers]") {
  constexpr int kThreads = 8;
  const std::vector<std::string> all = texts();
  for (const Fixture& fixture : fixtures()) {
    const auto tokenizer = open(fixture);
    std::vector<std::pair<TokenIds, std::string>> wanted;
    for (const std::string& text : all) {
      wanted.emplace_back(tokenizer->encode(text), "");
      wanted.back().second = tokenizer->decode(wanted.back().first);
    }
    std::atomic<int> differences = 0;
    std::vector<std::jthread> threads;
    for (std::size_t first = 0; first < kThreads; ++first) {
      threads.emplace_back([&, first] {
        for (std::size_t i = 0; i < all.size(); ++i) {  // each begins with another text
          const std::size_t at = (first * all.size() / kThreads + i) % all.size();
          const TokenIds ids = tokenizer->encode(all[at]);
          differences += ids != wanted[at].first || tokenizer->decode(ids) != wanted[at].second ||
                         tokenizer->encode_spans(all[at], SpecialTokens::kParse).size() != ids.size();
        }
      });
    }
    threads.clear();
    INFO(fixture.name);
    CHECK(differences == 0);
  }
}

TEST_CASE("Every option of a step is on in one fixture and off in another", "[tokenizers]") {
  const Seen seen = seen_in(fixtures());
  std::size_t options = 0;
  for (const auto& [name, values] : seen) {
    if (!values.contains("true") && !values.contains("false")) continue;
    ++options;
    INFO(name << " is always " << *values.begin() << "; tools/compat/fixture_kinds.py makes the fixtures");
    CHECK(values.size() == 2);
  }
  CHECK(options > 20);
}

}  // namespace
}  // namespace halfbyte
