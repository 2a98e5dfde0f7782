// A client that sends what it is told, byte by byte if need be.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace halfbyte::tests {

class Client {
 public:
  explicit Client(std::uint16_t port);  // connects to 127.0.0.1
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False: the server has closed.
  bool send(const std::string& bytes);
  // All until the server closes, or `end` has come, or 20 s have passed.
  std::string read(const std::string& end = "");
  void close();
  void shut_down_writing();

 private:
  int socket_;
};

// The status of a response; 0: it is none.
int status_of(const std::string& response);
std::string body_of(const std::string& response);

// "POST path" with the body, and a response that ends the connection.
std::string post(std::uint16_t port, const std::string& path, const std::string& body, const std::string& headers = "");
std::string get(std::uint16_t port, const std::string& path, const std::string& headers = "");
std::string post_text(const std::string& path, const std::string& body, const std::string& headers = "");

}  // namespace halfbyte::tests
