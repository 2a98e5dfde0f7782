// How a server listens. Needs no LibTorch.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace halfbyte {

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;           // 0: any that is free
  std::vector<std::string> keys = {};  // one of them must come as "Authorization: Bearer KEY"; none: nobody asks
  bool insecure = false;               // a host that is not loopback, without keys, is meant so
  std::chrono::seconds timeout{60};    // to send a request, or to take the next piece of an answer
  std::chrono::seconds idle{75};       // of a connection between requests
  std::size_t most_connections = 512;
  std::size_t most_body_bytes = 16 << 20;
  // One line a request: method, path, status, tokens and times; with `logs_texts` its body too. Empty: none.
  std::function<void(const std::string& line)> log = {};
  bool logs_texts = false;
};

}  // namespace halfbyte
