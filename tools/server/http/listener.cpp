#include "tools/server/http/listener.h"

#include <map>
#include <mutex>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <halfbyte/error.h>

#include "tools/server/http/connection.h"

namespace halfbyte::server {
namespace {

// While there are as many connections as may be, or no more file descriptors, it looks again so often.
constexpr std::chrono::milliseconds kFull{50};

asio::ip::address address_of(const std::string& host) {
  boost::system::error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (!error) return address;
  throw Error(ErrorCode::kInvalidArgument, "'" + host + "' is no address; expected one like 127.0.0.1, ::1 or 0.0.0.0");
}

}  // namespace

class Listener::State final : public Connections, public std::enable_shared_from_this<State> {
 public:
  State(const ListenerOptions& options, Calls calls)
      : options_(options), calls_(std::move(calls)), acceptor_(io_), timer_(io_) {
    const asio::ip::tcp::endpoint wanted(address_of(options.host), options.port);
    try {
      acceptor_.open(wanted.protocol());
      acceptor_.set_option(asio::ip::tcp::acceptor::reuse_address(true));
      acceptor_.bind(wanted);
      acceptor_.listen();
    } catch (const boost::system::system_error& error) {
      throw Error(ErrorCode::kIo, "cannot listen on " + options.host + ", port " + std::to_string(options.port) + ": " +
                                      error.code().message());
    }
    port_ = acceptor_.local_endpoint().port();
  }

  const ListenerOptions& options() const override { return options_; }
  bool is_draining() const override { return is_draining_; }
  void handle(std::shared_ptr<Exchange> exchange) override { calls_.handle(std::move(exchange)); }
  std::optional<HttpResponse> refused_head(const HttpRequest& head) const override { return calls_.check(head); }
  HttpResponse refused(int status, const std::string& problem) const override { return calls_.refuse(status, problem); }
  void closed(Connection* connection) override {
    all_.erase(connection);
    end_if_drained();
  }

  std::uint16_t port() const noexcept { return port_; }
  void run() {
    accept();
    io_.run();
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    for (const auto& [connection, owned] : std::exchange(all_, {})) connection->close();
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    timer_.cancel();
    io_.restart();  // what is left holds this object
    io_.poll();
  }

  void drain(std::chrono::milliseconds most) {
    const auto end = std::chrono::steady_clock::now() + most;
    if (is_draining_ && timer_.expiry() <= end) return;
    is_draining_ = true;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    for (const auto& [connection, owned] : std::map(all_)) connection->close_if_idle();
    timer_.expires_after(most);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) io_.stop();
    });
    end_if_drained();
  }

  void stop() { io_.stop(); }
  void post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    if (!is_over_) asio::post(io_, std::move(work));
  }

 private:
  void end_if_drained() {
    if (is_draining_ && all_.empty()) io_.stop();
  }

  void accept() {
    if (is_draining_) return;
    if (all_.size() >= options_.most_connections) return accept_later();
    acceptor_.async_accept([this](const boost::system::error_code& error, asio::ip::tcp::socket socket) {
      if (error == asio::error::operation_aborted || is_draining_) return;
      if (error) return accept_later();
      const auto connection = std::make_shared<Connection>(std::move(socket), shared_from_this());
      all_.emplace(connection.get(), connection);
      connection->start();
      accept();
    });
  }

  void accept_later() {
    timer_.expires_after(kFull);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) accept();
    });
  }

  ListenerOptions options_;
  Calls calls_;
  asio::io_context io_{1};
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer timer_;  // to accept again; once draining, to end
  std::map<Connection*, std::shared_ptr<Connection>> all_;
  std::uint16_t port_ = 0;
  bool is_draining_ = false;
  std::mutex mutex_;
  bool is_over_ = false;
};

Listener::Listener(const ListenerOptions& options, Calls calls)
    : state_(std::make_shared<State>(options, std::move(calls))) {}

Listener::~Listener() = default;

std::uint16_t Listener::port() const noexcept { return state_->port(); }

bool Listener::is_loopback(const std::string& host) { return address_of(host).is_loopback(); }

void Listener::run() { state_->run(); }

void Listener::drain(std::chrono::milliseconds most) {
  state_->post([state = state_, most] { state->drain(most); });
}

void Listener::stop() { state_->stop(); }

}  // namespace halfbyte::server
