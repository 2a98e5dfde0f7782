// Connections: requests in, responses out, with limits on everything that strangers can make long. The only folder that
// sees Boost.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tools/server/http/exchange.h"

namespace halfbyte::server {

struct ListenerOptions {
  std::string host;
  std::uint16_t port = 0;
  std::chrono::milliseconds request_timeout{60000};  // to send a request whole
  std::chrono::milliseconds write_timeout{60000};    // to take what is sent
  std::chrono::milliseconds idle_timeout{75000};
  std::size_t most_connections = 512;
  std::size_t most_header_bytes = 16 << 10;
  std::size_t most_body_bytes = 16 << 20;
};

class Listener {
 public:
  struct Calls {
    Handler handle;  // in run()'s thread; soon returns
    // Of a request whose body has not come: what it is refused with, if it is.
    std::function<std::optional<HttpResponse>(const HttpRequest& head)> check;
    // The response to what is no request that is taken: its status, and one line.
    std::function<HttpResponse(int status, const std::string& problem)> refuse;
  };
  // Errors: kIo, kInvalidArgument for a host that is no address.
  Listener(const ListenerOptions& options, Calls calls);
  ~Listener();

  std::uint16_t port() const noexcept;
  static bool is_loopback(const std::string& host);
  void run();
  // Takes no new connections, ends those without a request, and run() returns when the last exchange has ended, or
  // after `most`; called again, after the shorter of both.
  void drain(std::chrono::milliseconds most);
  void stop();

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace halfbyte::server
