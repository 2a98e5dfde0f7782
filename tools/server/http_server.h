// The server of models, whatever makes their answers. Needs no LibTorch.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <halfbyte/error.h>
#include <halfbyte/server_options.h>

#include "models/chat/chat_template.h"
#include "models/json/held.h"
#include "models/serving/engine.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::server {

// What is served. All of it is used by several threads.
struct ServedModel {
  std::string name;
  std::shared_ptr<serving::Engine> engine;
  std::shared_ptr<const models::Tokenizer> tokenizer;
  std::optional<models::ChatTemplate> chat = {};  // nothing: no chat completions
  TokenIds stop_tokens = {};                      // of texts; config.json's and generation_config.json's
  TokenIds chat_stop_tokens = {};                 // of answers besides them
  std::int64_t context = 0;                       // tokens of a prompt with its answer
  models::HeldOrderedJson report = {};            // what /v1/halfbyte/report says
};

// Of one listening socket. Threads: run() is called once; the others at any time, by anybody.
class HttpServer {
 public:
  // Listens. Errors: kInvalidArgument for options that make no sense, a host that is not loopback without keys among
  // them; kIo where the address cannot be had.
  explicit HttpServer(ServerOptions options);
  // Ends what is being answered. The engine must still run.
  ~HttpServer();

  // One more model; the first is meant where a request names none. Until it is called, /health says "starting", and
  // requests are told to come again. Errors: kInvalidArgument where one of that name is served.
  void serve(ServedModel model);
  std::uint16_t port() const noexcept;
  // "http://127.0.0.1:8080".
  std::string address() const;
  // Returns after stop(), or when what drain() left has ended.
  void run();
  // No new requests; those that are being answered go on for so long, then they are cut.
  void drain(std::chrono::milliseconds most);
  void stop();

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace halfbyte::server
