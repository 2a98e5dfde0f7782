// What becomes of a leading rank's sessions between its steps: made, forked, cut, dropped. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace halfbyte::models {

enum class SessionAct : std::uint8_t { kMake, kFork, kCut, kDrop };
struct SessionChange {
  SessionAct act;
  std::uint64_t session;
  std::uint64_t value = 0;  // kFork: the session that it is forked from; kCut: its length

  bool operator==(const SessionChange&) const = default;
};

// Threads: any.
class SessionLog {
 public:
  std::uint64_t make();
  std::uint64_t fork(std::uint64_t from);
  void cut(std::uint64_t session, std::int64_t length);
  void drop(std::uint64_t session) noexcept;
  // The oldest, which are then gone from it.
  std::vector<SessionChange> take(std::size_t most);
  // Nobody follows any more: nothing is written down from now on.
  void close();

 private:
  std::mutex mutex_;
  std::vector<SessionChange> changes_;
  std::uint64_t last_ = 0;
  bool is_open_ = true;
};

// By what name a log knows a session, as long as that lives. Without a log: of one that nobody follows.
class SessionTrace {
 public:
  SessionTrace() = default;
  explicit SessionTrace(std::shared_ptr<SessionLog> log) : log_(std::move(log)), session_(log_->make()) {}
  SessionTrace(SessionTrace&& other) noexcept
      : log_(std::exchange(other.log_, nullptr)), session_(std::exchange(other.session_, 0)) {}
  SessionTrace& operator=(SessionTrace&& other) noexcept {
    std::swap(log_, other.log_);
    std::swap(session_, other.session_);
    other.drop();
    return *this;
  }
  ~SessionTrace() { drop(); }

  SessionTrace fork() const;
  void cut(std::int64_t length) const {
    if (log_) log_->cut(session_, length);
  }
  // 0: that log does not know it.
  std::uint64_t in(const SessionLog& log) const noexcept { return log_.get() == &log ? session_ : 0; }
  bool is_followed() const noexcept { return log_ != nullptr; }

 private:
  void drop() noexcept;

  std::shared_ptr<SessionLog> log_;
  std::uint64_t session_ = 0;
};

}  // namespace halfbyte::models
