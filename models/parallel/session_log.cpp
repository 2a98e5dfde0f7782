#include "models/parallel/session_log.h"

#include <algorithm>
#include <exception>

namespace halfbyte::models {

std::uint64_t SessionLog::make() {
  const std::lock_guard lock(mutex_);
  if (is_open_) changes_.push_back({SessionAct::kMake, last_ + 1});
  return ++last_;
}

std::uint64_t SessionLog::fork(std::uint64_t from) {
  const std::lock_guard lock(mutex_);
  if (is_open_) changes_.push_back({SessionAct::kFork, last_ + 1, from});
  return ++last_;
}

void SessionLog::cut(std::uint64_t session, std::int64_t length) {
  const std::lock_guard lock(mutex_);
  if (is_open_) changes_.push_back({SessionAct::kCut, session, static_cast<std::uint64_t>(length)});
}

void SessionLog::drop(std::uint64_t session) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (is_open_) changes_.push_back({SessionAct::kDrop, session});
  } catch (const std::exception&) {  // no memory to say it in: who follows keeps it to the end
  }
}

std::vector<SessionChange> SessionLog::take(std::size_t most) {
  const std::lock_guard lock(mutex_);
  const auto end = changes_.begin() + static_cast<std::ptrdiff_t>(std::min(most, changes_.size()));
  std::vector<SessionChange> out(changes_.begin(), end);
  changes_.erase(changes_.begin(), end);
  return out;
}

void SessionLog::close() {
  const std::lock_guard lock(mutex_);
  is_open_ = false;
  changes_.clear();
}

SessionTrace SessionTrace::fork() const {
  SessionTrace out;
  if (!log_) return out;
  out.session_ = log_->fork(session_);
  out.log_ = log_;
  return out;
}

void SessionTrace::drop() noexcept {
  if (log_) log_->drop(session_);
  log_.reset();
  session_ = 0;
}

}  // namespace halfbyte::models
