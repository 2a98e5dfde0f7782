// Texts that a schema allows, byte by byte; and that whatever is chosen among allowed tokens ends as such a text in
// time.
#include "models/serving/constraints/schema.h"

#include <random>

#include <nlohmann/json.hpp>

#include "models/serving/constraints/number_prefix.h"
#include "models/serving/constraints/thinking_filter.h"
#include "tests/catch.h"
#include "tests/places.h"

#include <halfbyte/error.h>

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;
using models::TokenIds;
using serving::Schema;
using serving::SchemaFilter;
using serving::SchemaMachine;

bool fits(const std::string& schema, const std::string& text) {
  SchemaMachine machine(std::make_shared<const Schema>(Json::parse(schema)));
  for (const char byte : text) {
    const std::int64_t before = machine.rest();
    if (!machine.push(static_cast<unsigned char>(byte))) return false;
    CHECK(machine.rest() >= before - 1);  // no byte brings the end nearer than by itself
  }
  CHECK(machine.may_end() == (machine.rest() == 0));
  return machine.may_end();
}

struct Row {
  std::string schema;
  std::vector<std::string> good, bad;
};

TEST_CASE("texts fit a schema or do not", "[serving][schema]") {
  const std::vector<Row> rows = {
      {R"({"type": "string"})",
       {R"("")", R"("a\n\u001f\"")", "\"\xC3\xA4\xF0\x9F\x98\x80\""},
       {"", "a", "\"", "\"\n\"", "\"\xC3\"", "\"\xED\xA0\x80\"", R"("\ud800")", R"("\x")", R"("a"b)"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", "\"\xC3\xA4\xC3\xA4\xC3\xA4\"", R"("\n\n")"},
       {R"("a")", R"("abcd")"}},
      {R"({"type": "integer"})", {"0", "-1", "123456789012345"}, {"-0", "01", "1.5", "1e3", "1234567890123456", "-"}},
      {R"({"type": "integer", "minimum": -5, "exclusiveMaximum": 100})",
       {"-5", "0", "99"},
       {"-6", "100", "-10", "1000"}},
      {R"({"type": "number"})", {"0.5", "-12.25", "1e10", "2.5E-3"}, {".5", "1.", "1e", "1e999", "+1", "00"}},
      {R"({"type": "number", "minimum": 0.25, "maximum": 0.5})",
       {"0.25", "0.5", "0.333333333"},
       {"0", "0.6", "0.249", "1"}},
      {R"({"enum": ["a", "ab", 1, 12, null]})",
       {R"("a")", R"("ab")", "1", "12", "null"},
       {R"("b")", "2", "nul", "123"}},
      {R"({"const": {"a": [1, 2]}})", {R"({"a":[1,2]})"}, {R"({"a":[1]})"}},
      {R"({"type": "boolean"})", {"true", "false"}, {"null", "True"}},
      {R"({"type": ["string", "null"]})", {"null", R"("x")"}, {"1"}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2})",
       {"[1]", "[1, 2]", "[\n  1,\n  2\n]"},
       {"[]", "[1,2,3]", "[1,]", "[,1]", "[1 2]", "[1,  2]"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false, "minItems": 2})",
       {R"([1,"a"])"},
       {R"([1])", R"([1,"a",2])", R"(["a",1])"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}, "c": {"type": "null"}},
           "required": ["a", "c"]})",
       {R"({"a":1,"c":null})", R"({"a": 1, "b": null, "c": null})", "{\n  \"a\": 1,\n  \"c\": null\n}"},
       {"{}", R"({"a":1})", R"({"c":null,"a":1})", R"({"a":1,"c":null,})", R"({"a":1,"a":1,"c":null})",
        R"({"a" :1,"c":null})"}},
      {R"({"type": "object", "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"x":1,"y":-2})"},
       {R"({"x":"1"})", "{,}"}},
      {R"({"type": "object", "properties": {"\u00e4": {"const": "\u00e4"}}, "required": ["\u00e4"]})",
       {"{\"\xC3\xA4\":\"\xC3\xA4\"}", R"({"\u00e4":"\u00e4"})"},
       {R"({"a":"a"})"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]})",
       {"1", "[]", "[[1],2,[[]]]"},
       {"[a]", "{}"}},
      {R"({"$ref": "#/$defs/N", "$defs": {"N": {"type": "object", "properties": {"v": {"type": "integer"},
           "n": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}}, "required": ["v", "n"]}}})",
       {R"({"v":1,"n":null})", R"({"v":1,"n":{"v":2,"n":null}})"},
       {R"({"v":1,"n":{}})"}},
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
           {"type": "object", "properties": {"k": {"const": "b"}, "x": {"type": "integer"}}, "required": ["k", "x"]}]})",
       {R"({"k":"a"})", R"({"k":"b","x":1})"},
       {R"({"k":"b"})", R"({"k":"a","x":1})"}},
      {R"({"type": ["integer", "string"], "enum": [1, "a", null, 2.5]})", {"1", R"("a")"}, {"null", "2.5"}},
      {R"({"minimum": 5})", {"5"}, {"4"}},
      {R"({"type": "number", "minimum": 0.1, "maximum": 0.3})", {"0.1", "0.3", "0.25"}, {"0.09", "0.31"}},
      {R"({"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}, {"type": "string"}]})",
       {R"("abcdefghijklmnopqrst")"},
       {"1"}},
      {R"({"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "number"}]}})",
       {"[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]"},
       {"[1,]"}},
      {"{}", {"1", R"({"a":[1,{"b":null}],"c":"d"})", "true"}, {"", "{a}"}},
      {"true", {"null"}, {"x"}},
  };
  for (const Row& row : rows) {
    for (const std::string& text : row.good) {
      CAPTURE(row.schema, text);
      CHECK(fits(row.schema, text));
    }
    for (const std::string& text : row.bad) {
      CAPTURE(row.schema, text);
      CHECK_FALSE(fits(row.schema, text));
    }
  }
}

TEST_CASE("schemas that cannot be kept to are refused by the name of what is in the way", "[serving][schema]") {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"type": "string", "pattern": "a+"})", "pattern"},
      {R"({"type": "array", "uniqueItems": true})", "uniqueItems"},
      {R"({"not": {}})", "not"},
      {R"({"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 3}}})", "root.a"},
      {R"({"type": "what"})", "what"},
      {R"({"$ref": "http://example.com/x"})", "out of the schema"},
      {R"({"$ref": "#/nowhere"})", "nowhere"},
      {R"({"$ref": "#"})", "ends"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "ends"},
      {R"({"type": "integer", "minimum": 5, "maximum": 4})", "bounds"},
      {R"({"type": "string", "minLength": 5, "maxLength": 4})", "minLength"},
      {R"({"enum": []})", "enum"},
      {R"({"type": "object", "required": ["x"]})", "required"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "oneOf"},
      {R"({"oneOf": [{"$ref": "#/$defs/a"}, {"type": "string"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"minLength": 1}]}}})",
       "oneOf"},
      {R"({"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}]})", "beside"},
      {R"({"type": "string", "minLength": 99999999})", "minLength"},
      {R"({"type": "number", "minimum": 1e300})", "bounds"},
      {R"({"type": "string", "enum": [1]})", "type"},
      {"5", "object"},
      {"false", "false"},
  };
  for (const auto& [schema, part] : rows) {
    CAPTURE(schema);
    try {
      const Schema one(Json::parse(schema));
      FAIL("it was taken");
    } catch (const Error& error) {
      CHECK(std::string(error.what()).find(part) != std::string::npos);
    }
  }
}

TEST_CASE("what is chosen among allowed tokens becomes a text that fits, in time", "[serving][schema]") {
  const auto tokenizer = models::load_tokenizer(tests::data("tiny-llama"));
  const auto trie = std::make_shared<const serving::TokenTrie>(*tokenizer);
  const auto schema = std::make_shared<const Schema>(Json::parse(R"({"type": "object", "properties": {
      "name": {"type": "string"}, "age": {"type": "integer", "minimum": 18, "maximum": 99},
      "tags": {"type": "array", "items": {"enum": ["x", "yes", "\u00e4"]}, "minItems": 1},
      "more": {"anyOf": [{"$ref": "#"}, {"type": "null"}, {"type": "number", "maximum": -0.5}]}},
      "required": ["name", "age", "tags", "more"]})"));
  std::mt19937 random(5);
  const TokenIds stops = {2};
  for (int i = 0; i < 60; ++i) {
    SchemaFilter filter(schema, trie, stops);
    std::string text;
    std::vector<bool> allowed;
    std::int64_t room = 60 + static_cast<std::int64_t>(random() % 60);
    for (; room > 0 && !filter.must_end(); --room) {
      filter.allowed(room, allowed);
      TokenIds may;
      for (std::size_t id = 0; id < allowed.size(); ++id) {
        if (allowed[id]) may.push_back(static_cast<std::int64_t>(id));
      }
      REQUIRE_FALSE(may.empty());
      for (int tries = 0; tries < 20; ++tries) {  // both ways of asking say the same
        const auto id = static_cast<std::int64_t>(random() % allowed.size());
        CHECK(filter.allows(id, room) == allowed[static_cast<std::size_t>(id)]);
      }
      const std::int64_t token = may[random() % may.size()];
      if (token == 2) break;
      filter.choose(token);
      text += trie->bytes(token);
    }
    REQUIRE(filter.may_end());
    const Json json = Json::parse(text);
    CHECK(json["age"] >= 18);
    CHECK(json["age"] <= 99);
    CHECK(json["name"].is_string());
    CHECK(json["tags"].size() >= 1);
    CHECK((json["more"].is_null() || json["more"].is_object() || json["more"] <= -0.5));
  }
}

TEST_CASE("what is thought first ends while there is room for the answer", "[serving][schema]") {
  const auto tokenizer = models::load_tokenizer(tests::data("tiny-llama"));
  const auto trie = std::make_shared<const serving::TokenTrie>(*tokenizer);
  const TokenIds stops = {2};
  const auto schema = std::make_shared<const Schema>(Json::parse(R"({"enum": ["yes", "no"]})"));
  constexpr std::int64_t kClose = 300;  // any token will do
  std::mt19937 random(5);
  for (int run = 0; run < 50; ++run) {
    serving::ThinkingFilter filter(kClose, trie->vocab_size(), stops,
                                   std::make_shared<SchemaFilter>(schema, trie, stops));
    std::string answer;
    bool thinks = true;
    std::vector<bool> allowed;
    std::int64_t room = 5 + static_cast<std::int64_t>(random() % 40);
    for (; room > 0 && !filter.must_end(); --room) {
      filter.allowed(room, allowed);
      TokenIds may;
      for (std::size_t id = 0; id < allowed.size(); ++id) {
        CHECK(filter.allows(static_cast<std::int64_t>(id), room) == allowed[id]);
        if (allowed[id]) may.push_back(static_cast<std::int64_t>(id));
      }
      REQUIRE_FALSE(may.empty());
      if (thinks) CHECK_FALSE(filter.may_end());
      const std::int64_t token = may[random() % may.size()];
      if (token == 2) break;
      filter.choose(token);
      if (!thinks) answer += trie->bytes(token);
      thinks = thinks && token != kClose;
    }
    CHECK_FALSE(thinks);
    REQUIRE(filter.may_end());
    const std::string said = Json::parse(answer);
    CHECK((said == "yes" || said == "no"));
  }
}

}  // namespace
}  // namespace halfbyte
