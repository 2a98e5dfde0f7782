// Serves checkpoints to OpenAI's clients over HTTP: what `halfbyte serve` does, for host programs. Needs no LibTorch.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <halfbyte/error.h>
#include <halfbyte/leading.h>
#include <halfbyte/load_options.h>
#include <halfbyte/load_report.h>
#include <halfbyte/server_options.h>
#include <halfbyte/weighted_adapter.h>

namespace halfbyte {

// How a model is served.
struct ServeOptions {
  std::string name = {};           // as clients call it; empty: the checkpoint's last folder
  std::string chat_template = {};  // of a family, instead of the checkpoint's own; empty: that
  LoadOptions loading = {};
  std::vector<convert::WeightedAdapter> adapters = {};  // beside the model's weights, as peft and finetune write them
  std::int64_t parallel = 8;                            // answers made at once
  std::int64_t waiting = 64;  // that may wait for one of those to end; more are told to come again
  std::int64_t context = 0;   // tokens of a prompt with its answer; 0: the model's, or what kept_bytes has room for
  std::int64_t kept_bytes =
      0;  // memory of keys and values; 0: what `parallel` contexts take, a quarter of this machine's memory at most
  // Of a model that ranks run together (LoadOptions::group), of which this is rank 0, and the others follow (follow()):
  // kept_bytes is then this rank's, of a quarter its share. Once they do not follow any more, what is being answered
  // ends with status 503, and run() returns.
  LeadOptions lead = {};
};

// The checkpoint's last folder: its name where ServeOptions say none.
std::string served_name(const std::filesystem::path& checkpoint);

// What is served, once it is.
struct Serving {
  LoadReport report;
  std::string name;
  std::int64_t context = 0;
  std::int64_t kept_bytes = 0;         // memory of keys and values
  std::int64_t bytes_of_sequence = 0;  // of one as long as the context
  bool has_chat = false;               // a chat template was found
};

// Of one listening socket. Threads: run() is called once, serve() by one thread at a time; the others at any time, by
// anybody.
class Server {
 public:
  // Listens; until serve() has returned, clients are told to come again. Errors: kInvalidArgument for options that make
  // no sense, a host that is not loopback without keys among them; kIo where the address cannot be had.
  explicit Server(ServerOptions options);
  // Ends what is being answered.
  ~Server();

  // Loads the checkpoint, and answers from now on, where requests name it; the first one also where they name none.
  // Errors: as load_low_bit, and as convert::Adapters; kNotFound without a tokenizer; kInvalidArgument for options out
  // of range, or a name that another has; kUnsupported for adapters, or another model, beside one of several ranks.
  Serving serve(const std::filesystem::path& checkpoint, const ServeOptions& options = {});

  std::uint16_t port() const noexcept;
  std::string address() const;  // "http://127.0.0.1:8080"
  // Returns after stop(), or when what drain() left has ended.
  void run();
  // No new requests; those that are being answered go on for so long, then they are cut.
  void drain(std::chrono::milliseconds most);
  void stop();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace halfbyte
