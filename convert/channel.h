// A bounded queue between two threads of a pipeline, and a thread whose exception join() throws again.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace halfbyte::convert {

// Threads: any number on both sides.
template <class T>
class Channel {
 public:
  explicit Channel(std::size_t capacity) : capacity_(capacity) {}

  // Waits for room. False when stopped.
  bool push(T value, std::stop_token stop) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, std::move(stop), [&] { return queue_.size() < capacity_; })) return false;
    queue_.push_back(std::move(value));
    changed_.notify_all();
    return true;
  }

  // Puts back what was taken; it comes out first, since it is in the cache still. Never waits.
  void give_back(T value) {
    const std::lock_guard lock(mutex_);
    queue_.push_front(std::move(value));
    changed_.notify_all();
  }

  // Waits for a value. Nothing when closed and empty, or stopped.
  std::optional<T> pop(std::stop_token stop) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, std::move(stop), [&] { return !queue_.empty() || is_closed_; })) return std::nullopt;
    if (queue_.empty()) return std::nullopt;
    std::optional<T> value(std::move(queue_.front()));
    queue_.pop_front();
    changed_.notify_all();
    return value;
  }

  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    changed_.notify_all();
  }

 private:
  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<T> queue_;
  bool is_closed_ = false;
};

// Runs `work` on a thread of its own. An exception there stops the whole pipeline and is thrown again by join().
class Worker {
 public:
  Worker(std::stop_source& pipeline, std::function<void(std::stop_token)> work)
      : thread_([this, &pipeline, work = std::move(work)] {
          try {
            work(pipeline.get_token());
          } catch (...) {
            error_ = std::current_exception();
            pipeline.request_stop();
          }
        }) {}

  void join() {
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::exception_ptr error_;
  std::jthread thread_;  // last: it uses error_, and is joined before error_ goes
};

}  // namespace halfbyte::convert
