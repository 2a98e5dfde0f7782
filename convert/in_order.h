// The steps of a pipeline that must come in the order of the blocks although many threads work on them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <utility>

namespace halfbyte::convert {

// Lets threads through one at a time, by number from 0 on.
class Turnstile {
 public:
  // Waits until every number below this one has passed. False when stopped.
  bool wait(std::uint64_t number, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    return changed_.wait(lock, stop, [&] { return next_ == number; });
  }
  // Called by the thread that wait() returned to. One that fails does not call it, so all later ones wait until
  // stopped.
  void pass() {
    const std::lock_guard lock(mutex_);
    ++next_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::uint64_t next_ = 0;
};

// Values that come in any order are consumed one at a time by number, from 0 on, so that no thread waits for another:
// the thread that adds the next number consumes it and all that follow it without a gap.
template <class T>
class InOrder {
 public:
  explicit InOrder(std::function<void(T)> consume) : consume_(std::move(consume)) {}

  // Throws what `consume` throws, in the thread that calls it; nothing is consumed after that.
  void put(std::uint64_t number, T value) {
    std::unique_lock lock(mutex_);
    ready_.emplace(number, std::move(value));
    if (is_consuming_) return;
    is_consuming_ = true;
    for (auto node = ready_.extract(next_); node; node = ready_.extract(next_)) {
      lock.unlock();
      consume_(std::move(node.mapped()));
      lock.lock();
      ++next_;
    }
    is_consuming_ = false;
  }

 private:
  const std::function<void(T)> consume_;
  std::mutex mutex_;
  std::map<std::uint64_t, T> ready_;
  std::uint64_t next_ = 0;
  bool is_consuming_ = false;
};

}  // namespace halfbyte::convert
