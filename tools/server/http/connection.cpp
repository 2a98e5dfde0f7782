#include "tools/server/http/connection.h"

#include <array>
#include <atomic>
#include <charconv>
#include <sstream>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>

namespace halfbyte::server {
namespace {

// "a%2Fb" to "a/b".
std::string unescaped(const std::string& path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    unsigned value = 0;
    const char *const begin = path.data() + i + 1, *const end = begin + 2;
    const bool is_escape = path[i] == '%' && i + 2 < path.size() && std::from_chars(begin, end, value, 16).ptr == end;
    out += is_escape ? static_cast<char>(value) : path[i];
    i += is_escape ? 2 : 0;
  }
  return out;
}

// What a client may send of its next requests while one is being answered.
constexpr std::size_t kMostAhead = 64 << 10;
using Clock = asio::steady_timer::clock_type;
// After a response that ends the connection: so long what still comes is thrown away, so that the client gets to read.
constexpr std::chrono::milliseconds kLinger{2000};

template <class Body>
http::response<Body> response_of(const HttpResponse& from, unsigned version, bool keeps_alive) {
  http::response<Body> out(static_cast<http::status>(from.status), version);
  out.set(http::field::server, "halfbyte");
  out.set(http::field::cache_control, "no-store");
  out.set("X-Content-Type-Options", "nosniff");
  if (!from.content_type.empty()) out.set(http::field::content_type, from.content_type);
  for (const auto& [name, value] : from.headers) out.set(std::string(name), value);
  out.keep_alive(keeps_alive);
  return out;
}

template <class Message>
std::string text_of(const Message& message) {
  std::ostringstream out;
  out << message;
  return std::move(out).str();
}

std::string chunk_of(const std::string& piece) {
  std::ostringstream out;
  out << std::hex << piece.size() << "\r\n" << piece << "\r\n";
  return std::move(out).str();
}

std::string string_of(beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

// What calls it goes on in the connection's thread.
class Connection::Answer final : public Exchange, public std::enable_shared_from_this<Answer> {
 public:
  Answer(std::shared_ptr<Connection> connection, HttpRequest request)
      : connection_(std::move(connection)), request_(std::move(request)) {}
  ~Answer() override {  // nobody will ever answer
    if (!has_ended_) post([connection = connection_] { connection->close(); });
  }
  const HttpRequest& request() const override { return request_; }
  std::string take_body() override { return std::exchange(request_.body, {}); }
  bool is_gone() const override { return connection_->is_closed_; }
  void respond(HttpResponse response) override {
    has_ended_ = true;
    post([c = connection_, r = std::move(response)]() mutable { c->respond(std::move(r), true); });
  }
  void begin(HttpResponse head) override {
    post([c = connection_, r = std::move(head)]() mutable { c->respond(std::move(r), false); });
  }
  void send(std::string piece) override {
    post([c = connection_, p = std::move(piece)]() mutable { c->send(std::move(p)); });
  }
  void end() override {
    has_ended_ = true;
    post([c = connection_] { c->end(); });
  }
  void when_gone(std::function<void()> tell) override {
    post([c = connection_, t = std::move(tell)]() mutable {
      if (c->is_closed_) return t();
      if (c->is_answering_) c->tell_gone_ = std::move(t);
    });
  }

 private:
  template <class Work>
  void post(Work work) {
    connection_->all_->post(std::move(work));
  }
  std::shared_ptr<Connection> connection_;
  HttpRequest request_;
  std::atomic<bool> has_ended_ = false;
};

Connection::Connection(asio::ip::tcp::socket socket, std::shared_ptr<Connections> all)
    : socket_(std::move(socket)), deadline_(socket_.get_executor()), all_(std::move(all)) {
  boost::system::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
}

void Connection::expect_within(std::chrono::milliseconds time) {
  deadline_.expires_after(time);
  deadline_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error || self->is_closed_ || self->deadline_.expiry() > Clock::now()) return;
    if (self->is_answering_ || self->has_ended_) return self->close();
    if (!self->parser_ || !self->parser_->is_header_done()) return self->close();
    boost::system::error_code ignored;
    self->socket_.cancel(ignored);  // what is being read
    self->refuse(408, "the request did not come in time");
  });
}

void Connection::expect_nothing() { deadline_.expires_at(Clock::time_point::max()); }

void Connection::read() {
  const bool is_first = !parser_;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(all_->options().most_header_bytes));
  parser_->body_limit(all_->options().most_body_bytes);
  has_ended_ = false;
  expect_within(is_first ? all_->options().request_timeout : all_->options().idle_timeout);
  http::async_read_header(
      socket_, buffer_, *parser_,
      [self = shared_from_this()](const boost::system::error_code& error, std::size_t) { self->has_header(error); });
}

void Connection::has_header(const boost::system::error_code& error) {
  if (is_closed_ || is_answering_) return;
  if (error) return refuse_unreadable(error);
  const auto& head = parser_->get();
  version_ = head.version();
  keeps_alive_ = head.keep_alive();
  is_head_ = head.method() == http::verb::head;
  const bool has_body = parser_->chunked() || parser_->content_length().value_or(0) > 0;
  if (has_body) {  // who may not, or asks for nothing, need not send it
    if (auto refusal = all_->refused_head(head_of_request())) {
      keeps_alive_ = false;
      is_answering_ = true;
      return respond(std::move(*refusal), true);
    }
  }
  expect_within(all_->options().request_timeout);
  const auto read_body = [self = shared_from_this()](const boost::system::error_code& failed, std::size_t) {
    if (self->is_closed_ || self->is_answering_) return;
    if (failed) return self->close();
    http::async_read(self->socket_, self->buffer_, *self->parser_,
                     [self](const boost::system::error_code& end, std::size_t) { self->has_request(end); });
  };
  if (!beast::iequals(head[http::field::expect], "100-continue")) return read_body({}, 0);
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(kContinue), read_body);
}

void Connection::has_request(const boost::system::error_code& error) {
  if (is_closed_ || is_answering_) return;  // refused already
  if (error) return refuse_unreadable(error);
  expect_nothing();
  is_answering_ = true;
  const auto answer = std::make_shared<Answer>(shared_from_this(), take_request());
  watch();
  all_->handle(answer);
}

HttpRequest Connection::head_of_request() {
  const auto& message = parser_->get();
  HttpRequest out;
  out.method = string_of(message.method_string());
  out.path = unescaped(string_of(message.target().substr(0, message.target().find('?'))));
  out.content_type = string_of(message[http::field::content_type]);
  out.authorization = string_of(message[http::field::authorization]);
  out.host = string_of(message[http::field::host]);
  boost::system::error_code ignored;
  out.peer = socket_.remote_endpoint(ignored).address().to_string();
  return out;
}

HttpRequest Connection::take_request() {
  HttpRequest out = head_of_request();
  out.body = std::move(parser_->get().body());
  return out;
}

void Connection::refuse_unreadable(const boost::system::error_code& error) {
  if (error == http::error::body_limit)
    return refuse(413, "the body is longer than " + std::to_string(all_->options().most_body_bytes) + " bytes");
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return refuse(431, "the header is longer than " + std::to_string(all_->options().most_header_bytes) + " bytes");
  const bool is_http = error.category() == make_error_code(http::error::bad_method).category();
  if (!is_http || error == http::error::end_of_stream || error == http::error::partial_message) return close();
  refuse(400, "this is not HTTP as it is understood here");
}

// Ends the connection: where the next request would begin is not known.
void Connection::refuse(int status, const std::string& problem) {
  keeps_alive_ = false;
  is_answering_ = true;
  respond(all_->refused(status, problem), true);
}

void Connection::respond(HttpResponse response, bool is_whole) {
  if (is_closed_ || !is_answering_) return;
  if (all_->is_draining()) keeps_alive_ = false;
  is_chunked_ = !is_whole && version_ >= 11;
  if (!is_whole && !is_chunked_) keeps_alive_ = false;
  if (is_whole) {
    auto message = response_of<http::string_body>(response, version_, keeps_alive_);
    message.body() = std::move(response.body);
    message.prepare_payload();
    if (is_head_) message.body().clear();
    send(text_of(message));
    return end();
  }
  auto head = response_of<http::empty_body>(response, version_, keeps_alive_);
  if (is_chunked_) head.chunked(true);
  const bool is_chunked = std::exchange(is_chunked_, false);
  send(text_of(head.base()));
  is_chunked_ = is_chunked;
  if (!response.body.empty()) send(std::move(response.body));
}

void Connection::send(std::string piece) {
  if (is_closed_ || !is_answering_ || has_ended_ || piece.empty()) return;
  waiting_ += is_chunked_ ? chunk_of(piece) : piece;
  write();
}

void Connection::end() {
  if (is_closed_ || !is_answering_ || has_ended_) return;
  has_ended_ = true;
  tell_gone_ = {};
  if (is_chunked_) waiting_ += "0\r\n\r\n";
  is_chunked_ = false;
  write();
}

void Connection::write() {
  if (is_writing_ || waiting_.empty()) return;
  is_writing_ = true;
  writing_ = std::exchange(waiting_, {});
  expect_within(all_->options().write_timeout);
  asio::async_write(
      socket_, asio::buffer(writing_),
      [self = shared_from_this()](const boost::system::error_code& error, std::size_t) { self->written(error); });
}

void Connection::written(const boost::system::error_code& error) {
  is_writing_ = false;
  if (is_closed_) return;
  expect_nothing();
  if (error) return close();
  if (!waiting_.empty()) return write();
  if (has_ended_) finished();
}

void Connection::finished() {
  is_answering_ = false;
  boost::system::error_code ignored;
  if (is_watching_) socket_.cancel(ignored);
  if (keeps_alive_ && !all_->is_draining()) return read();
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  linger();
}

// Until the client closes.
void Connection::linger() {
  if (!is_lingering_) {
    is_lingering_ = true;
    deadline_.expires_after(kLinger);
    deadline_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->close();
    });
  }
  socket_.async_read_some(asio::buffer(thrown_away_),
                          [self = shared_from_this()](const boost::system::error_code& error, std::size_t) {
                            if (self->is_closed_) return;
                            error ? self->close() : self->linger();
                          });
}

// Reads ahead while a request is being answered, to notice when the client goes.
void Connection::watch() {
  is_watching_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](const boost::system::error_code& error) {
                       self->is_watching_ = false;
                       if (!error && !self->is_closed_ && self->is_answering_) self->may_be_gone();
                     });
}

void Connection::may_be_gone() {
  boost::system::error_code error;
  const std::size_t got = socket_.read_some(buffer_.prepare(4096), error);
  buffer_.commit(got);
  if (error && error != asio::error::would_block) return close();
  buffer_.size() < kMostAhead ? watch() : close();
}

void Connection::close_if_idle() {
  if (!is_answering_ && !is_lingering_) close();
}

void Connection::close() {
  if (is_closed_.exchange(true)) return;
  const auto tell = std::exchange(tell_gone_, {});
  boost::system::error_code ignored;
  deadline_.cancel();
  socket_.close(ignored);
  all_->closed(this);
  if (tell) tell();
}

}  // namespace halfbyte::server
