// What is made for one request after its handler has returned.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace halfbyte::server {

class Job {
 public:
  virtual ~Job() = default;
  // The client has gone, or the server goes: nobody wants it.
  virtual void cancel() = 0;
  // Gone when the job is, and all that it holds.
  void set_alive(std::shared_ptr<void> alive) { alive_ = std::move(alive); }

 private:
  std::shared_ptr<void> alive_;
};

// Counts jobs, so that the engine's thread is never the last to hold the engine.
class Alive {
 public:
  std::shared_ptr<void> one() {
    const std::lock_guard lock(mutex_);
    ++count_;
    return {this, [](void* self) { static_cast<Alive*>(self)->gone(); }};
  }
  void wait_for_none() {
    std::unique_lock lock(mutex_);
    none_.wait(lock, [&] { return count_ == 0; });
  }

 private:
  void gone() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) none_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable none_;
  std::int64_t count_ = 0;
};

}  // namespace halfbyte::server
