// What each endpoint answers, and what it refuses.
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/tools/server/running.h"

namespace halfbyte {
namespace {

using nlohmann::json;
using tests::body_of;
using tests::Running;
using tests::status_of;

json json_of(const std::string& response) { return json::parse(body_of(response)); }

// The data of a stream's events, [DONE] left out.
std::vector<json> events_of(const std::string& response) {
  std::vector<json> out;
  for (std::size_t at = 0; (at = response.find("data: {", at)) != std::string::npos; at += 6) {
    const std::size_t end = response.find("\n\n", at);
    out.push_back(json::parse(response.substr(at + 6, end - at - 6)));
  }
  return out;
}

TEST_CASE("a completion comes whole, or in pieces that are the same", "[server]") {
  Running running("the little dog ran home and slept");
  const json whole = json_of(running.post("/v1/completions", R"({"prompt": "say", "max_tokens": 100, "echo": true})"));
  CHECK(whole["object"] == "text_completion");
  CHECK(whole["model"] == "tiny");
  CHECK(whole["choices"][0]["text"].get<std::string>().ends_with("the little dog ran home and slept"));
  CHECK(whole["choices"][0]["text"].get<std::string>().starts_with("say"));
  CHECK(whole["choices"][0]["finish_reason"] == "stop");
  CHECK(whole["usage"]["total_tokens"] ==
        whole["usage"]["prompt_tokens"].get<int>() + whole["usage"]["completion_tokens"].get<int>());
  const std::string stream = running.post(
      "/v1/completions",
      R"({"prompt": "say", "max_tokens": 3, "stream": true, "stream_options": {"include_usage": true}, "n": 2})");
  CHECK(stream.find("data: [DONE]\n\n") != std::string::npos);
  const std::vector<json> events = events_of(stream);
  std::string texts[2];
  int ends = 0;
  for (const json& event : events) {
    for (const json& choice : event["choices"]) {
      texts[choice["index"].get<std::size_t>()] += choice["text"];
      ends += choice["finish_reason"] == "length";
    }
  }
  CHECK(texts[0] == texts[1]);
  CHECK(whole["choices"][0]["text"].get<std::string>().find(texts[0]) != std::string::npos);
  CHECK(texts[0].size() > 3);
  CHECK(ends == 2);
  CHECK(events.back()["usage"]["completion_tokens"] == 6);
  CHECK(events.front()["usage"].is_null());
}

TEST_CASE("a chat's answer is a message; what it thinks stands apart", "[server]") {
  Running running("<think>so it is</think>\n\nyes");
  const json whole =
      json_of(running.post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "well?"}]})"));
  CHECK(whole["object"] == "chat.completion");
  CHECK(whole["choices"][0]["message"]["role"] == "assistant");
  CHECK(whole["choices"][0]["message"]["content"] == "yes");
  CHECK(whole["choices"][0]["message"]["reasoning_content"] == "so it is");
  std::string thinking, text;
  for (const json& event : events_of(running.post(
           "/v1/chat/completions",
           R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "well?"}]}], "stream": true})"))) {
    const json& delta = event["choices"][0]["delta"];
    thinking += delta.value("reasoning_content", "");
    text += delta.value("content", "");
  }
  CHECK(thinking == "so it is");
  CHECK(text == "yes");
}

TEST_CASE("a stop text ends an answer, and no part of it is sent", "[server]") {
  Running running("one two three four five");
  for (const char* stream : {"false", "true"}) {
    const std::string response =
        running.post("/v1/completions",
                     R"({"prompt": "x", "max_tokens": 50, "stop": ["e f"], "stream": )" + std::string(stream) + "}");
    std::string text;
    if (std::string(stream) == "true") {
      for (const json& event : events_of(response)) text += event["choices"][0]["text"];
    } else {
      text = json_of(response)["choices"][0]["text"];
    }
    CHECK(text.ends_with("one two thre"));
  }
}

TEST_CASE("what is asked for reaches the engine", "[server]") {
  Running running("a");
  CHECK(status_of(running.post("/v1/completions",
                               R"({"prompt": [5, 6, 7], "temperature": 0.25, "top_p": 0.5, "top_k": 3, "min_p": 0.1,
                                   "seed": 42, "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.5,
                                   "logit_bias": {"7": -100}, "max_tokens": 9, "logprobs": 4, "user": "me"})")) == 200);
  const serving::Request found = running.engine->last_request();
  CHECK(found.prompt == TokenIds{5, 6, 7});
  CHECK(found.sampling.temperature == 0.25);
  CHECK(found.sampling.top_p == 0.5);
  CHECK(found.sampling.top_k == 3);
  CHECK(found.sampling.min_p == 0.1);
  CHECK(found.sampling.presence_penalty == 1);
  CHECK(found.sampling.frequency_penalty == -1);
  CHECK(found.sampling.repetition_penalty == 1.5);
  CHECK((found.sampling.logit_bias == std::vector<std::pair<std::int64_t, float>>{{7, -100.0f}}));
  CHECK(found.seed == 42);
  CHECK(found.max_tokens == 9);
  CHECK(found.top_logprobs == 4);
}

struct Refusal {
  const char* path;
  const char* body;
  int status;
  const char* field;  // null: none
};

TEST_CASE("what makes no sense is refused by the name of its field", "[server]") {
  Running running("a");
  const char* const kChat = "/v1/chat/completions";
  const char* const kText = "/v1/completions";
  const std::vector<Refusal> rows = {
      {kText, "", 400, nullptr},
      {kText, "[]", 400, nullptr},
      {kText, "{\"prompt\": \"\xff\"}", 400, nullptr},
      {kText, "{\"prompt\": 1e999}", 400, nullptr},
      {kText, "{}", 400, "prompt"},
      {kText, R"({"prompt": []})", 400, "prompt"},
      {kText, R"({"prompt": [-1]})", 400, "prompt"},
      {kText, R"({"prompt": [1.5]})", 400, "prompt"},
      {kText, R"({"prompt": {"a": 1}})", 400, "prompt"},
      {kText, R"({"prompt": "a", "temperature": 3})", 400, "temperature"},
      {kText, R"({"prompt": "a", "temperature": "hot"})", 400, "temperature"},
      {kText, R"({"prompt": "a", "top_p": -0.1})", 400, "top_p"},
      {kText, R"({"prompt": "a", "n": 0})", 400, "n"},
      {kText, R"({"prompt": "a", "n": 1000000})", 400, "n"},
      {kText, R"({"prompt": "a", "max_tokens": -1})", 400, "max_tokens"},
      {kText, R"({"prompt": "a", "max_tokens": 18446744073709551615})", 400, "max_tokens"},
      {kText, R"({"prompt": "a", "stop": [""]})", 400, "stop"},
      {kText, R"({"prompt": "a", "stop": 5})", 400, "stop"},
      {kText, R"({"prompt": "a", "logit_bias": {"x": 1}})", 400, "logit_bias"},
      {kText, R"({"prompt": "a", "logit_bias": {"999999": 1}})", 400, "logit_bias"},
      {kText, R"({"prompt": "a", "suffix": "b"})", 400, "suffix"},
      {kText, R"({"prompt": "a", "best_of": 3})", 400, "best_of"},
      {kText, R"({"prompt": "a", "stream_options": {}})", 400, "stream_options"},
      {kText, R"({"prompt": "a", "frobnicate": 1})", 400, "frobnicate"},
      {kText, R"({"prompt": "a", "model": "other"})", 404, "model"},
      {kChat, R"({})", 400, "messages"},
      {kChat, R"({"messages": []})", 400, "messages"},
      {kChat, R"({"messages": [5]})", 400, "messages[0]"},
      {kChat, R"({"messages": [{"role": "king", "content": "a"}]})", 400, "messages[0].role"},
      {kChat, R"({"messages": [{"role": "user"}]})", 400, "messages[0].content"},
      {kChat, R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", 400, "messages[0].content"},
      {kChat, R"({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2})", 400, "top_logprobs"},
      {kChat, R"({"messages": [{"role": "user", "content": "a"}], "tools": [1]})", 400, "tools"},
      {"/v1/embeddings", R"({"input": "a", "dimensions": 3})", 400, "dimensions"},
      {"/v1/embeddings", R"({"input": "a", "encoding_format": "int4"})", 400, "encoding_format"},
      {"/tokenize", R"({})", 400, "text"},
      {"/detokenize", R"({"tokens": [99999999]})", 400, "tokens"},
  };
  for (const Refusal& row : rows) {
    CAPTURE(row.path, row.body);
    const std::string response = running.post(row.path, row.body);
    REQUIRE(status_of(response) == row.status);
    const json error = json_of(response)["error"];
    CHECK(error["message"].get<std::string>().size() > 10);
    CHECK(error["message"].get<std::string>().find('\n') == std::string::npos);
    CHECK(error["param"] == (row.field ? json(row.field) : json(nullptr)));
  }
}

TEST_CASE("methods, paths, types and hosts that are none are refused", "[server]") {
  Running running("a");
  CHECK(status_of(running.get("/nothing")) == 404);
  CHECK(status_of(running.get("/v1/completions")) == 405);
  CHECK(status_of(running.post("/v1/models", "{}")) == 405);
  CHECK(status_of(running.get("/../etc/passwd")) == 404);
  CHECK(status_of(running.get("/v1/models/")) == 404);
  CHECK(status_of(running.get("/v1/models/another")) == 404);
  CHECK(json_of(running.get("/v1/models/ti%6Ey")) == json_of(running.get("/v1/models"))["data"][0]);
  const std::uint16_t port = running.server.port();
  const auto raw = [&](const std::string& text) {
    tests::Client client(port);
    client.send(text);
    return client.read();
  };
  CHECK(status_of(raw("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: "
                      "text/plain\r\nContent-Length: 2\r\n\r\n{}")) == 415);
  CHECK(status_of(raw("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")) == 403);
  const std::string head = raw("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  CHECK(status_of(head) == 200);
  CHECK(body_of(head).empty());
  CHECK(head.find("Access-Control") == std::string::npos);
}

TEST_CASE("several models are told apart by name, and the first is meant where none is said", "[server]") {
  Running running("first");
  const auto engine = std::make_shared<tests::FakeEngine>(running.tokenizer().encode("second"), 8);
  const std::shared_ptr<const models::Tokenizer> tokenizer = models::load_tokenizer(tests::data("tiny-llama"));
  const auto another = [&](const char* name) {
    return server::ServedModel{.name = name, .engine = engine, .tokenizer = tokenizer, .context = 128};
  };
  running.server.serve(another("other/one"));
  CHECK_THROWS_AS(running.server.serve(another("tiny")), Error);
  const auto said = [&](const std::string& body) {
    return json_of(running.post("/v1/completions", body))["choices"][0]["text"].get<std::string>();
  };
  CHECK(said(R"({"prompt": "a"})").find("first") != std::string::npos);
  CHECK(said(R"({"prompt": "a", "model": "tiny"})").find("first") != std::string::npos);
  CHECK(said(R"({"prompt": "a", "model": "other/one"})").find("second") != std::string::npos);
  CHECK(json_of(running.get("/v1/models"))["data"].size() == 2);
  CHECK(json_of(running.get("/v1/models/other%2Fone"))["max_model_len"] == 128);
  const std::string refusal = running.post("/v1/completions", R"({"prompt": "a", "model": "third"})");
  CHECK(status_of(refusal) == 404);
  CHECK(body_of(refusal).find("'tiny', 'other/one'") != std::string::npos);
  CHECK(status_of(running.get("/metrics")) == 200);
}

TEST_CASE("with keys, who has none is refused, but may ask for health", "[server]") {
  ServerOptions options;
  options.keys = {"secret-one", "secret-two"};
  Running running("a", options);
  CHECK(status_of(running.get("/health")) == 200);
  for (const char* path : {"/v1/models", "/metrics", "/v1/halfbyte/report"}) {
    CHECK(status_of(running.get(path)) == 401);
    CHECK(status_of(running.get(path, "Authorization: Bearer secret-on\r\n")) == 401);
    CHECK(status_of(running.get(path, "Authorization: Bearer secret-onee\r\n")) == 401);
    CHECK(status_of(running.get(path, "Authorization: Bearer \r\n")) == 401);
    CHECK(status_of(running.get(path, "Authorization: Bearer secret-two\r\n")) == 200);
  }
  CHECK_THROWS_AS(server::HttpServer({.host = "0.0.0.0", .port = 0}), Error);
  CHECK_THROWS_AS(server::HttpServer({.host = "nowhere.example", .port = 0}), Error);
  CHECK_NOTHROW(server::HttpServer({.host = "0.0.0.0", .port = 0, .keys = {"k"}}));
}

TEST_CASE("texts become tokens and back, and vectors of length one", "[server]") {
  Running running("a");
  const json tokens = json_of(running.post("/tokenize", R"({"text": "the dog", "with_pieces": true})"));
  CHECK(tokens["count"] == tokens["tokens"].size());
  CHECK(tokens["pieces"].size() == tokens["tokens"].size());
  const json back = json_of(running.post("/detokenize", json{{"tokens", tokens["tokens"]}}.dump()));
  CHECK(back["text"] == "the dog");
  const json vectors = json_of(running.post("/v1/embeddings", R"({"input": ["a", "b c"], "model": "tiny"})"));
  REQUIRE(vectors["data"].size() == 2);
  CHECK(vectors["data"][1]["embedding"][0].get<double>() == Approx(0.6));
  CHECK(vectors["data"][1]["embedding"][2].get<double>() == Approx(0.8));
  const json coded = json_of(running.post("/v1/embeddings", R"({"input": "a", "encoding_format": "base64"})"));
  CHECK(coded["data"][0]["embedding"] == "mpkZPwAAAADNzEw/");
}

TEST_CASE("a chat's calls of tools are told apart from its text", "[server]") {
  Running running("I look. <tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Lima\"}}\n</tool_call>");
  const std::string body = R"({"messages": [{"role": "user", "content": "a"}], "tools":
      [{"type": "function", "function": {"name": "weather"}}]})";
  // A family's row knows texts alone, so that tools are refused where there is no template of the checkpoint's own.
  const std::string response = running.post("/v1/chat/completions", body);
  CHECK(status_of(response) == 400);
  CHECK(json_of(response)["error"]["message"].get<std::string>().find("tools") != std::string::npos);
}

TEST_CASE("metrics count, and a report is there", "[server]") {
  Running running("a b c");
  running.post("/v1/completions", R"({"prompt": "x", "max_tokens": 5})");
  const std::string text = body_of(running.get("/metrics"));
  CHECK(text.find("halfbyte_responses_total{endpoint=\"/v1/completions\",status=\"200\"} 1\n") != std::string::npos);
  CHECK(text.find("# TYPE halfbyte_first_token_seconds histogram") != std::string::npos);
  CHECK(status_of(running.get("/v1/halfbyte/report")) == 200);
}

}  // namespace
}  // namespace halfbyte
