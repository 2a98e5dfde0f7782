// A thread for what takes longer than the network may wait: reading requests, templates, tokens.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace halfbyte::server {

// What is left when it goes is not done.
class Worker {
 public:
  Worker() : thread_([this](std::stop_token stop) { run(std::move(stop)); }) {}

  void add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    news_.notify_one();
  }

 private:
  void run(std::stop_token stop) {
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        if (!news_.wait(lock, stop, [&] { return !work_.empty(); })) return;
        if (stop.stop_requested()) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any news_;
  std::deque<std::function<void()>> work_;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace halfbyte::server
