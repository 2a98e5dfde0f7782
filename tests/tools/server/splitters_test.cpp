// What a model thinks, calls and says, told apart however its text is cut into pieces.
#include <random>

#include "tests/catch.h"
#include "tools/server/api/python_values.h"
#include "tools/server/api/thinking.h"
#include "tools/server/api/tool_calls.h"

namespace halfbyte {
namespace {

using server::ThinkingSplitter;
using server::ToolCall;
using server::ToolCallSplitter;

std::vector<std::string> cut(const std::string& text, std::mt19937& random) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = 1 + random() % 7;
    out.push_back(text.substr(at, size));
    at += size;
  }
  return out;
}

struct Thought {
  bool is_open;
  std::string text, thinking, answer;
};

TEST_CASE("thinking ends where it says so", "[server]") {
  const std::vector<Thought> rows = {
      {false, "<think>a<b</think>\n\nc", "a<b", "c"},
      {false, " \n<think>a</think>c</think>", "a", "c</think>"},
      {false, "plain <think>x</think>", "", "plain <think>x</think>"},
      {false, "<thin", "", "<thin"},
      {false, "<think>never ends </thin", "never ends </thin", ""},
      {true, "goes on</think>said", "goes on", "said"},
      {true, "", "", ""},
  };
  std::mt19937 random(3);
  for (const Thought& row : rows) {
    for (int i = 0; i < 50; ++i) {
      ThinkingSplitter splitter(row.is_open);
      std::string thinking, answer;
      const auto add = [&](const ThinkingSplitter::Parts& parts) {
        thinking += parts.thinking;
        answer += parts.answer;
      };
      for (const std::string& piece : cut(row.text, random)) add(splitter.push(piece));
      add(splitter.finish());
      CHECK(thinking == row.thinking);
      CHECK(answer == row.answer);
    }
  }
}

struct Spoken {
  std::string text, said;
  std::vector<ToolCall> calls;
};

TEST_CASE("calls are found in the ways that families write them", "[server]") {
  const std::string arguments = R"({"city":"Lima"})";
  const ToolCall weather{"weather", arguments};
  const std::vector<Spoken> rows = {
      {"Let me see.<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Lima\"}}\n</tool_call>",
       "Let me see.",
       {weather}},
      {"<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Lima\"}}</tool_call>\n<tool_call>{\"name\": "
       "\"weather\", \"arguments\": {\"city\": \"Lima\"}}</tool_call>",
       "",
       {weather, weather}},
      {"[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Lima\"}}]", "", {weather}},
      {"[TOOL_CALLS]weather[ARGS]{\"city\": \"Lima\"}", "", {weather}},
      {"{\"name\": \"weather\", \"parameters\": {\"city\": \"Lima\"}}", "", {weather}},
      {"<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"city\": \"Lima\"}}", "", {weather}},
      {"{\"name\": \"Alice\", \"arguments\": {}}", "{\"name\": \"Alice\", \"arguments\": {}}", {}},
      {"{\"name\": \"weather\", \"age\": 3}", "{\"name\": \"weather\", \"age\": 3}", {}},
      {"{\"a\": 1} is JSON", "{\"a\": 1} is JSON", {}},
      {"<tool_call>nonsense</tool_call> after", "<tool_call>nonsense</tool_call> after", {}},
      {"<tool_call>{\"name\": ", "<tool_call>{\"name\": ", {}},
      {"a < b and <tool", "a < b and <tool", {}},
      {"weather\n{\"city\": \"Lima\"}", "", {weather}},  // GLM-4
      {"\n weather \n{\"city\": \"Lima\"} ", "", {weather}},
      {"weather\n```python\ntool_call(city='Lima')\n```", "", {weather}},  // ChatGLM3
      {"weather\nis fine", "weather\nis fine", {}},
      {"weather", "weather", {}},
      {"we are", "we are", {}},
      {"weathered\n{}", "weathered\n{}", {}},
      {"<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Lima</arg_value>\n</tool_call>", "", {weather}},
      {"<tool_call>\n<function=weather>\n<parameter=city>\nLima\n</parameter>\n</function>\n</tool_call>",
       "",
       {weather}},
      {"<tool_call>time<arg_key>zone</arg_key><arg_value>12</arg_value><arg_key>at</arg_key><arg_value>12</arg_value>"
       "</tool_call>",
       "",
       {{"time", R"({"zone":"12","at":12})"}}},
      {"<tool_call>unknown<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
       "<tool_call>unknown<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
       {}},
      {"", "", {}},
  };
  std::mt19937 random(4);
  for (const Spoken& row : rows) {
    CAPTURE(row.text);
    for (int i = 0; i < 50; ++i) {
      ToolCallSplitter splitter({{"weather"}, {"time", {"zone"}}});
      std::string said;
      std::vector<ToolCall> calls;
      const auto add = [&](const ToolCallSplitter::Parts& parts) {
        said += parts.text;
        calls.insert(calls.end(), parts.calls.begin(), parts.calls.end());
      };
      for (const std::string& piece : cut(row.text, random)) add(splitter.push(piece));
      add(splitter.finish());
      CHECK(said == row.said);
      CHECK((calls == row.calls));
      CHECK(splitter.has_calls() == !row.calls.empty());
    }
  }
}

TEST_CASE("arguments as Python writes them become JSON", "[server]") {
  using server::keyword_arguments;
  const auto is = [](const char* text, const char* json) {
    const auto read = keyword_arguments(text);
    return read && read->dump() == json;
  };
  CHECK(is("", "{}"));
  CHECK(is("a=1, b='x\\'y', c=\"z\\n\"", R"({"a":1,"b":"x'y","c":"z\n"})"));
  CHECK(is("a='\\q\\u00e9\\x41', b=1., c=.5, d=-.5)\nSo (it) is.",
           "{\"a\":\"\\\\q\u00e9A\",\"b\":1.0,\"c\":0.5,\"d\":-0.5}"));
  CHECK(is("a=True, b=False , c=None,", R"({"a":true,"b":false,"c":null})"));
  CHECK(is("a=[1, -2.5, (3,)], b={'k': ['v']}", R"({"a":[1,-2.5,[3]],"b":{"k":["v"]}})"));
  for (const char* bad : {"a", "a=", "=1", "a=b", "a='x", "a=[1", "a={1: 2}", "a=1 b=2", "1=2", "a=1]", "a='\\x4'",
                          "a='\\ud800'", "a=--"}) {
    CAPTURE(bad);
    CHECK_FALSE(keyword_arguments(bad));
  }
  CHECK_FALSE(keyword_arguments("a=" + std::string(5000, '[')));
}

}  // namespace
}  // namespace halfbyte
