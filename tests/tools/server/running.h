// A server of the fake engine's answers, listening.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "tests/places.h"
#include "tests/tools/server/client.h"
#include "tests/tools/server/fake_engine.h"
#include "tools/server/http_server.h"

namespace halfbyte::tests {

class Running {
 public:
  explicit Running(const std::string& says, ServerOptions options = {}, std::int64_t most_waiting = 1 << 20)
      : tokenizer_(models::load_tokenizer(data("tiny-llama"))),
        engine(std::make_shared<FakeEngine>(tokenizer_->encode(says), most_waiting)),
        server(local(std::move(options))),
        thread_([this] { server.run(); }) {
    server::ServedModel model{.name = "tiny", .engine = engine, .tokenizer = tokenizer_, .context = 256};
    model.chat = models::load_chat_template(data("tiny-llama"), *tokenizer_, {.name = "chatml"});
    server.serve(std::move(model));
  }
  ~Running() {
    engine->open_gate();
    server.stop();
    thread_.join();
  }
  std::string post(const std::string& path, const std::string& body, const std::string& headers = "") {
    return tests::post(server.port(), path, body, headers);
  }
  std::string get(const std::string& path, const std::string& headers = "") {
    return tests::get(server.port(), path, headers);
  }
  const models::Tokenizer& tokenizer() const { return *tokenizer_; }
  void wait() {
    thread_.join();
    thread_ = std::thread([] {});
  }

 private:
  static ServerOptions local(ServerOptions options) {
    options.port = 0;
    return options;
  }
  std::shared_ptr<const models::Tokenizer> tokenizer_;

 public:
  std::shared_ptr<FakeEngine> engine;
  server::HttpServer server;

 private:
  std::thread thread_;
};

}  // namespace halfbyte::tests
