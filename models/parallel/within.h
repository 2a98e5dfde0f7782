// Calls that can wait for ever: c10d's store waits for an answer of a process that may be stopped.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

namespace halfbyte::models {

struct NoAnswer : std::runtime_error {
  using runtime_error::runtime_error;
};

// What `work` returns, on a thread of its own, which is left behind when it takes longer: `work` owns all that it uses.
// Errors: what it throws; NoAnswer("timed out").
template <class Work>
auto within(std::chrono::milliseconds limit, Work work) -> decltype(work()) {
  auto task = std::make_shared<std::packaged_task<decltype(work())()>>(std::move(work));
  auto future = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  if (future.wait_for(limit) != std::future_status::ready) throw NoAnswer("timed out");
  return future.get();
}

}  // namespace halfbyte::models
