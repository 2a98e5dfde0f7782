// JSON of files, field by field: what is there, and the one line about what is not as it should be.
#include "models/json/field.h"

#include "tests/catch.h"

#include <functional>
#include <limits>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/json/held.h"
#include "models/json/printable.h"

namespace halfbyte {
namespace {

const nlohmann::json kFile = nlohmann::json::parse(R"({
  "name": "tiny", "sizes": [2, 3, -1], "depth": 4, "huge": 18446744073709551615, "scale": 0.5, "is_tied": true,
  "nothing": null, "inner": {"list": [{"x": "y"}]}, "a\u001b[31m": {"b": 1}})");

JsonField root() { return JsonField(kFile, "config.json"); }

std::string problem_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kCorrupt);
    return error.what();
  }
  return "none";
}

TEST_CASE("JSON fields: values of every kind", "[json]") {
  CHECK(root().at("name").string() == "tiny");
  CHECK(root().at("depth").integer(0, 4) == 4);
  CHECK(root().at("depth").size() == 4);
  CHECK(root().at("scale").number() == 0.5);
  CHECK(root().at("is_tied").boolean());
  CHECK(root().at("inner").at("list").items().front().at("x").string() == "y");
  CHECK(root().members().size() == kFile.size());
}

TEST_CASE("JSON fields: absent and null are the same, and have a fallback", "[json]") {
  for (const char* key : {"nothing", "absent"}) {
    CHECK_FALSE(root().find(key).has_value());
    CHECK(root().string_or(key, "else") == "else");
    CHECK(root().boolean_or(key, true));
    CHECK(root().integer_or(key, 7, 0, 9) == 7);
  }
  CHECK(problem_of([] { root().at("nothing"); }) == "config.json: has no \"nothing\"");
}

TEST_CASE("JSON fields: an error names the file, the path, what was found and what is wanted", "[json]") {
  const auto list = [] { return root().at("inner").at("list"); };
  CHECK(problem_of([&] { list().string(); }) == "config.json: inner.list: found [{\"x\":\"y\"}], wanted a string");
  CHECK(problem_of([&] { list().items()[0].at("x").boolean(); }) ==
        "config.json: inner.list[0].x: found \"y\", wanted true or false");
  CHECK(problem_of([] { root().at("depth").integer(0, 3); }) ==
        "config.json: depth: found 4, wanted a whole number from 0 to 3");
  CHECK(problem_of([] { root().at("sizes").shape(); }).starts_with("config.json: sizes[2]: found -1, wanted a whole"));
  CHECK(problem_of([] { root().at("name").items(); }) == "config.json: name: found \"tiny\", wanted a list");
  CHECK(problem_of([] { root().at("name").find("x"); }) == "config.json: name: found \"tiny\", wanted an object");
  CHECK(problem_of([] { root().at("scale").integer(0); }).starts_with("config.json: scale: found 0.5, wanted a whole"));
}

TEST_CASE("JSON fields: a number beyond 63 bits is none, and an infinite one neither", "[json]") {
  CHECK_FALSE(root().at("huge").as_integer(0, std::numeric_limits<std::int64_t>::max()).has_value());
  const nlohmann::json infinite = std::numeric_limits<double>::infinity();
  CHECK_FALSE(JsonField(infinite, "f").as_number(-1e308, std::numeric_limits<double>::infinity()).has_value());
}

TEST_CASE("JSON fields: hostile keys and values cannot colour a terminal or fill it", "[json][hostile]") {
  const std::string problem = problem_of([] { root().at("a\x1b[31m").at("b").string(); });
  CHECK(problem == "config.json: a\\x1b[31m.b: found 1, wanted a string");
  const nlohmann::json long_text = std::string(100'000, 'x');
  CHECK(problem_of([&] { JsonField(long_text, "f").boolean(); }).size() < 150);
  CHECK(printable("plain") == "plain");
  CHECK(printable(std::string("\0\x7f\n", 3)) == "\\x00\\x7f\\x0a");
  CHECK(printable("12345", 5) == "12345");
  CHECK(printable("123456", 5) == "12345...");
  CHECK(printable("\u00e9\u00e9\u00e9", 3) == "\u00e9\u00e9...");  // never half a character
  CHECK(printable("a\u009b\u202e\U000E0001\xFF\xC3") == "a\\u009b\\u202e\\U000e0001\\xff\\xc3");
  CHECK(printable("\u53eb \U0001F600") == "\u53eb \U0001F600");
  CHECK(printable(printable("\x1b\u202e")) == printable("\x1b\u202e"));
  CHECK(printable_lines("a\n\tb\x1b[2J\u009b\u200d") == "a\n\tb\\x1b[2J\\u009b\u200d");
  CHECK(printable_json("{\n\"\u009b\U000E0001\u00e9\"}") == "{\n\"\\u009b\\udb40\\udc01\u00e9\"}");
}

TEST_CASE("Held JSON is copied with its value, and a copy is its own", "[json]") {
  models::HeldJson first(nlohmann::json{{"a", 1}});
  models::HeldJson second = first;
  (*second)["a"] = 2;
  CHECK((*first)["a"] == 1);
  CHECK((*second)["a"] == 2);
  first = second;
  CHECK(*first == *second);
  first = nlohmann::json::array({1, 2});
  CHECK(first->size() == 2);
  CHECK(models::HeldJson()->is_null());
  const models::HeldJson moved = std::move(first);
  CHECK(moved->size() == 2);
}

}  // namespace
}  // namespace halfbyte
