// Threads that are ranks of one group, each with a model of its own.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <halfbyte/group.h>
#include <halfbyte/shared_memory_group.h>

namespace halfbyte::tests {

class Ranks {
 public:
  explicit Ranks(int size)
      : bytes_(shared_memory_bytes(size)), memory_(new (std::align_val_t{64}) std::byte[bytes_]()), size_(size) {}
  ~Ranks() { ::operator delete[](memory_, std::align_val_t{64}); }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  std::shared_ptr<Group> join(int rank, const SharedMemoryOptions& options = {}) const {
    return join_shared_memory({memory_, bytes_}, rank, size_, options);
  }

  // Each rank's work on a thread of its own. Throws what the first of them threw.
  void run(const std::function<void(const std::shared_ptr<Group>& group)>& work) const {
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          work(join(rank, {.timeout = std::chrono::minutes(1)}));
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

 private:
  std::size_t bytes_;
  std::byte* memory_;
  int size_;
};

}  // namespace halfbyte::tests
