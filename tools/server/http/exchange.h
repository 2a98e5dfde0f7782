// One HTTP request and its response, as the rest of the server sees them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::server {

struct HttpRequest {
  std::string method;  // "POST"
  std::string path;    // "/v1/models", without escapes and the query
  std::string content_type = {};
  std::string authorization = {};
  std::string host = {};  // the header
  std::string body = {};
  std::string peer = {};  // the other side's address
};

struct HttpHeader {
  std::string_view name;
  std::string value;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<HttpHeader> headers = {};
};

// May be used by any thread; what one calls happens in that order.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  virtual std::string take_body() = 0;  // of the request, which has none then; once
  virtual bool is_gone() const = 0;     // nobody waits for a response
  // The whole response, once; or its beginning, pieces and end. Nothing happens where the client has gone.
  virtual void respond(HttpResponse response) = 0;
  virtual void begin(HttpResponse head) = 0;  // whose body is its first piece
  virtual void send(std::string piece) = 0;
  virtual void end() = 0;
  // Called once, soon after the client has gone or has not taken what it was sent, if that is before the end.
  virtual void when_gone(std::function<void()> tell) = 0;
};

using Handler = std::function<void(std::shared_ptr<Exchange> exchange)>;

}  // namespace halfbyte::server
