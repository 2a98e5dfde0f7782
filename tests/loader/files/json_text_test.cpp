// JSON of a checkpoint's files: read once, into the tree that the text says, within the bounds that hostile files try.
#include "loader/files/json_text.h"

#include "tests/catch.h"

#include <random>
#include <string>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

namespace halfbyte::files {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

template <class Json = json>
std::string problem_of(const std::string& text, const JsonLimits& limits = {}) {
  try {
    parse_json<Json>(text, "f.json", limits);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kCorrupt);
    return error.what();
  }
  return "none";
}

std::string nested(std::size_t levels) {
  std::string text;
  for (std::size_t i = 0; i < levels; ++i) text += i % 2 ? "[" : "{\"a\":";
  text += "1";
  for (std::size_t i = levels; i-- > 0;) text += i % 2 ? "]" : "}";
  return text;
}

// Values of every kind, nested up to `depth`; objects' keys in no order.
ordered_json any_value(std::mt19937& random, int depth) {
  const auto pick = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  switch (pick(depth > 0 ? 8 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return pick(2) == 0;
    case 2:
      return -static_cast<std::int64_t>(random());
    case 3:
      return static_cast<std::uint64_t>(random()) << 32;
    case 4:
      return static_cast<double>(random()) * 1e-20;
    case 5:
      return std::string(pick(40), 'x') + "\"\\\n\u00e9";
    case 6: {
      auto out = ordered_json::array();
      for (unsigned n = pick(5); n > 0; --n) out.push_back(any_value(random, depth - 1));
      return out;
    }
    default: {
      auto out = ordered_json::object();
      for (unsigned n = pick(5); n > 0; --n) out[std::to_string(pick(1000))] = any_value(random, depth - 1);
      return out;
    }
  }
}

TEST_CASE("JSON text: the tree is what the text says", "[json]") {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const std::string text = any_value(random, 6).dump(i % 3 - 1);
    INFO(text);
    REQUIRE(parse_json<json>(text, "f.json", {}) == json::parse(text));
    REQUIRE(parse_json<ordered_json>(text, "f.json", {}).dump() == ordered_json::parse(text).dump());
  }
}

TEST_CASE("JSON text: what is refused, in one line", "[json]") {
  CHECK(problem_of(R"({"a": {"b": 1, "c": 2, "b": 3}})") == "f.json: the key \"b\" stands twice in one object");
  CHECK(problem_of<ordered_json>(R"([{"b": 1, "b": 1}])") == "f.json: the key \"b\" stands twice in one object");
  CHECK(problem_of(R"({"a": {"b": 1}, "c": {"b": 1}})") == "none");
  CHECK(problem_of(nested(5), {.max_depth = 5}) == "none");
  CHECK(problem_of(nested(6), {.max_depth = 5}) == "f.json: nested deeper than 5 levels");
  CHECK(problem_of(std::string(2'000'000, '[')) == "f.json: nested deeper than 64 levels");
  CHECK(problem_of("[1, 2, 3]", {.max_bytes = 8}) == "f.json: too large");
  CHECK(problem_of(std::string("[1]\0", 4)) == "f.json: not JSON: holds a zero byte");
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "[1] 2", "[\"\xff\"]", "[01]", "[1e999]", "nul"}) {
    INFO(text);
    CHECK_THAT(problem_of(text), Catch::Matchers::StartsWith("f.json: not JSON: "));
    CHECK(problem_of(text).find('\n') == std::string::npos);
  }
}

TEST_CASE("JSON text: keys that would cost a square of their number are bounded", "[json]") {
  std::string text = "{";
  for (int i = 0; i < 100; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
  text += "}";
  CHECK(problem_of<ordered_json>(text, {.max_comparisons = 100 * 101 / 2}) == "none");
  CHECK(problem_of<ordered_json>(text, {.max_comparisons = 100 * 101 / 2 - 1}) ==
        "f.json: more keys than any such file has");
}

}  // namespace
}  // namespace halfbyte::files
