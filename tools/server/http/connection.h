// One client's connection: requests one after another, each with its exchange.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "tools/server/http/listener.h"

namespace halfbyte::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

class Connection;

// What connections share. Used in run()'s thread.
class Connections {
 public:
  virtual ~Connections() = default;
  virtual const ListenerOptions& options() const = 0;
  virtual bool is_draining() const = 0;
  virtual void handle(std::shared_ptr<Exchange> exchange) = 0;
  virtual std::optional<HttpResponse> refused_head(const HttpRequest& head) const = 0;
  virtual HttpResponse refused(int status, const std::string& problem) const = 0;
  virtual void closed(Connection* connection) = 0;
  // From any thread: runs it in that thread, unless run() has ended.
  virtual void post(std::function<void()> work) = 0;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(asio::ip::tcp::socket socket, std::shared_ptr<Connections> all);

  void start() { read(); }
  // Where no request is being answered.
  void close_if_idle();
  void close();

 private:
  class Answer;  // the exchange of this connection
  using Parser = http::request_parser<http::string_body>;

  void read();
  void has_header(const boost::system::error_code& error);
  void has_request(const boost::system::error_code& error);
  void refuse(int status, const std::string& problem);
  void refuse_unreadable(const boost::system::error_code& error);
  HttpRequest head_of_request();
  HttpRequest take_request();
  // Of the exchange, in this thread.
  void respond(HttpResponse response, bool is_whole);
  void send(std::string piece);
  void end();
  void write();
  void written(const boost::system::error_code& error);
  void finished();
  void linger();
  void watch();
  void may_be_gone();
  // The deadline of what the connection waits for.
  void expect_within(std::chrono::milliseconds time);
  void expect_nothing();

  asio::ip::tcp::socket socket_;
  asio::steady_timer deadline_;
  std::shared_ptr<Connections> all_;  // also of those whose answers outlive run()
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::function<void()> tell_gone_;
  std::string waiting_, writing_;  // bytes
  std::array<char, 4096> thrown_away_;
  bool is_answering_ = false, is_chunked_ = false, is_writing_ = false, has_ended_ = false;
  std::atomic<bool> is_closed_ = false;  // read by other threads too
  bool keeps_alive_ = false, is_watching_ = false, is_head_ = false, is_lingering_ = false;
  unsigned version_ = 11;
};

}  // namespace halfbyte::server
