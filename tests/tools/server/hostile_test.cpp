// Clients that are slow, go, lie about lengths, or send what is no HTTP: they get their status, and disturb nobody.
#include <chrono>
#include <future>
#include <random>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/tools/server/running.h"

namespace halfbyte {
namespace {

using namespace std::chrono_literals;
using tests::Client;
using tests::post_text;
using tests::Running;
using tests::status_of;

ServerOptions quick() {
  ServerOptions options;
  options.timeout = 1s;
  options.idle = 1s;
  options.most_body_bytes = 100000;
  return options;
}

bool is_well(Running& running) {
  const std::string response = running.post("/v1/completions", R"({"prompt": "x", "max_tokens": 4})");
  return status_of(response) == 200 && nlohmann::json::parse(tests::body_of(response))["choices"].size() == 1;
}

std::string sent(Running& running, const std::string& bytes) {
  Client client(running.server.port());
  client.send(bytes);
  return client.read();
}

TEST_CASE("what is no request that is taken gets its status", "[server][hostile]") {
  Running running("a b", quick());
  const std::string deep(5000, '[');
  CHECK(status_of(running.post("/v1/completions", "{\"prompt\": " + deep)) == 400);
  CHECK(status_of(running.post("/v1/completions", "{\"prompt\": \"" + std::string(200000, 'a') + "\"}")) == 413);
  CHECK(status_of(running.get("/health", "X: " + std::string(30000, 'x') + "\r\n")) == 431);
  CHECK(status_of(sent(running, "nonsense\r\n\r\n")) == 400);
  CHECK(status_of(sent(running, "GET /health HTTP/9.9\r\n\r\n")) == 400);
  CHECK(status_of(sent(running, "POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n")) == 400);
  CHECK(status_of(sent(running, "POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n")) ==
        400);
  CHECK(
      status_of(sent(
          running,
          "POST /tokenize HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n")) ==
      400);
  CHECK(status_of(sent(running,
                       "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                       "application/json\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n")) == 413);
  CHECK(is_well(running));
}

TEST_CASE("bodies that would take long are refused at once, and who may not send one need not", "[server][hostile]") {
  ServerOptions options = quick();
  options.most_body_bytes = 8 << 20;
  Running running("a b", options);
  const auto begin = std::chrono::steady_clock::now();
  std::string wide = "{\"prompt\": \"a\"", lists = "{\"x\": [{}";
  for (int i = 0; i < 400000; ++i) wide += ", \"k" + std::to_string(i) + "\": 0";
  for (int i = 0; i < 1000000; ++i) lists += ",{}";
  CHECK(status_of(running.post("/v1/completions", wide + "}")) == 400);
  CHECK(status_of(running.post("/v1/completions", lists + "]}")) == 400);
  std::string deep =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{"function":
      {"name": "f", "arguments": "{\"a\":)";
  deep += std::string(100000, '[') + std::string(100000, ']') + "}\"}}]}]}";
  const int status = status_of(running.post("/v1/chat/completions", deep));
  CHECK((status == 200 || status == 400));
  std::string optional = R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema",
      "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a0": true)";
  for (int i = 1; i < 3000; ++i) optional += ", \"a" + std::to_string(i) + "\": true";
  CHECK(status_of(running.post("/v1/chat/completions", optional + "}}}}}")) == 400);
  Client stranger(running.server.port());
  stranger.send("POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n");
  CHECK(status_of(stranger.read("\r\n\r\n")) == 404);
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
  CHECK(is_well(running));
}

TEST_CASE("a body that comes late, after its request was refused, is thrown away", "[server][hostile]") {
  Running running("a b", quick());
  Client client(running.server.port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n");
  CHECK(status_of(client.read("\r\n\r\n")) == 408);
  client.send(std::string(3000, 'x'));
  client.read();
  CHECK(is_well(running));
}

TEST_CASE("one thousand hostile bodies get a status, and disturb nobody", "[server][hostile]") {
  Running running("a b c", quick());
  std::mt19937 random(11);
  const std::string good = R"({"prompt": "once", "max_tokens": 3, "stop": ["x"], "logit_bias": {"5": 1.5}, "n": 2})";
  Client kept(running.server.port());
  int refused = 0, taken = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string body = good;
    for (std::size_t changes = 1 + random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % body.size();
      switch (random() % 4) {
        case 0:
          body[at] = static_cast<char>(random());
          break;
        case 1:
          body.erase(at, 1 + random() % 9);
          break;
        case 2:
          body.insert(at, std::string(1 + random() % 20, "[{\"9\\-e"[random() % 7]));
          break;
        default:
          body.insert(at, body.substr(0, random() % body.size()));
      }
      if (body.empty()) body = "{";
    }
    const std::string path = random() % 3 == 0 ? "/v1/chat/completions" : "/v1/completions";
    const std::string response = running.post(path, body);
    const int status = status_of(response);
    REQUIRE((status == 200 || status == 400 || status == 404));
    (status == 200 ? taken : refused) += 1;
    if (status != 200) REQUIRE_NOTHROW(nlohmann::json::parse(tests::body_of(response)));
  }
  CHECK(refused > 500);
  CHECK(is_well(running));
}

TEST_CASE("requests one after another on one connection are answered in order, also sent at once",
          "[server][hostile]") {
  Running running("a b", quick());
  Client client(running.server.port());
  std::string all;
  for (int i = 0; i < 5; ++i)
    all +=
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        "13\r\n\r\n{\"text\": \"" +
        std::to_string(i) + "\"}";
  all += post_text("/tokenize", R"({"text": "end"})");
  client.send(all);
  const std::string text = client.read();
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find("HTTP/1.1 200", at)) != std::string::npos; ++at) ++count;
  CHECK(count == 6);
}

TEST_CASE("who sends or reads slowly ends at the timeout, and others are served meanwhile", "[server][hostile]") {
  Running running("a b", quick());
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 40; ++i) {
    slow.push_back(std::make_unique<Client>(running.server.port()));
    slow.back()->send(i % 2 ? "GET /hea"
                            : "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                              "application/json\r\nContent-Length: 50\r\n\r\n{");
  }
  const auto begin = std::chrono::steady_clock::now();
  CHECK(is_well(running));
  CHECK(std::chrono::steady_clock::now() - begin < 900ms);
  for (int i = 0; i < 40; ++i) {
    const int status = status_of(slow[std::size_t(i)]->read());
    CHECK(status == (i % 2 ? 0 : 408));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
}

TEST_CASE("a client that does not read what it asked for is cut off, and its answer ends", "[server][hostile]") {
  Running running("a word that comes again and again ", quick());
  running.engine->repeat();
  Client client(running.server.port());
  client.send(
      post_text("/v1/completions", R"({"prompt": "x", "max_tokens": 9000000, "stream": true, "ignore_eos": true})"));
  client.read("data: ");
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!running.engine->was_cancelled(1) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  CHECK(running.engine->was_cancelled(1));
}

TEST_CASE("a client that goes ends its answer, whole or in pieces", "[server][hostile]") {
  Running running("a word ", quick());
  running.engine->close_gate();
  serving::Ticket ticket = 0;
  for (const char* stream : {"true", "false"}) {
    for (const bool closes : {true, false}) {
      Client client(running.server.port());
      client.send(
          "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ");
      const std::string body = R"({"prompt": "x", "max_tokens": 9, "stream": )" + std::string(stream) + "}";
      client.send(std::to_string(body.size()) + "\r\n\r\n" + body);
      running.engine->wait_for(++ticket);
      closes ? client.close() : client.shut_down_writing();
      const auto deadline = std::chrono::steady_clock::now() + 20s;
      while (!running.engine->was_cancelled(ticket) && std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();
      CHECK(running.engine->was_cancelled(ticket));
    }
  }
}

TEST_CASE("more requests than may wait are told to come again", "[server][hostile]") {
  Running running("a", quick(), 2);
  running.engine->close_gate();
  std::vector<std::unique_ptr<Client>> waiting;
  for (int i = 0; i < 2; ++i) {
    waiting.push_back(std::make_unique<Client>(running.server.port()));
    waiting.back()->send(post_text("/v1/completions", R"({"prompt": "x", "stream": true})"));
    waiting.back()->read("\r\n\r\n");  // its head comes once it waits
  }
  const std::string response = running.post("/v1/completions", R"({"prompt": "x"})");
  CHECK(status_of(response) == 429);
  CHECK(response.find("Retry-After: 1") != std::string::npos);
  running.engine->open_gate();
  for (const auto& client : waiting) CHECK(client->read().find("[DONE]") != std::string::npos);
}

TEST_CASE("a server that drains finishes what it answers, and takes nothing new", "[server][hostile]") {
  Running running("a b c", quick());
  running.engine->close_gate();
  Client client(running.server.port());
  client.send(post_text("/v1/completions", R"({"prompt": "x", "stream": true})"));
  client.read("\r\n\r\n");
  Client idle(running.server.port());
  running.server.drain(20s);
  CHECK(idle.read().empty());
  running.engine->open_gate();
  CHECK(client.read().find("[DONE]") != std::string::npos);
  running.wait();
  CHECK_THROWS(Client(running.server.port()));
}

TEST_CASE("a server that goes ends what is being answered", "[server][hostile]") {
  Client* client = nullptr;
  {
    Running running("a word ", quick());
    running.engine->repeat();
    client = new Client(running.server.port());
    client->send(post_text("/v1/completions", R"({"prompt": "x", "max_tokens": 900000000, "stream": true})"));
    client->read("data: ");
  }
  client->read();
  delete client;
}

}  // namespace
}  // namespace halfbyte
