// A thread for what takes longer than the network may wait: reading requests, templates, tokens.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace halfbyte::server {

class Worker {
 public:
  // What waits at most: pieces of work, and the memory that they hold. Units: bytes.
  static constexpr std::size_t kMostWork = 1024, kMostBytes = 128 << 20;

  Worker() : thread_([this](std::stop_token stop) { run(std::move(stop)); }) {}

  // False: too much waits already. `bytes`: that the work holds.
  bool add(std::size_t bytes, std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    if (work_.size() >= kMostWork || (bytes_ + bytes > kMostBytes && !work_.empty())) return false;
    work_.push_back({bytes, std::move(work)});
    bytes_ += bytes;
    news_.notify_one();
    return true;
  }
  // Ends what is being done; what waits is not done.
  void stop() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  struct Work {
    std::size_t bytes;
    std::function<void()> call;
  };

  void run(std::stop_token stop) {
    while (true) {
      Work work;
      {
        std::unique_lock lock(mutex_);
        if (!news_.wait(lock, stop, [&] { return !work_.empty(); }) || stop.stop_requested()) return;
        work = std::move(work_.front());
        work_.pop_front();
        bytes_ -= work.bytes;
      }
      work.call();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any news_;
  std::deque<Work> work_;
  std::size_t bytes_ = 0;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace halfbyte::server
