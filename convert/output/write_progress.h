// What everything that writes a result asks and tells after each block: whether to stop, and how far it is.
#pragma once

#include <cstdint>
#include <stop_token>

#include <halfbyte/error.h>

#include "loader/files/parallel.h"

namespace halfbyte::convert {

// Errors: kInterrupted after a stop.
inline void check_stop(const std::stop_token& stop) {
  if (stop.stop_requested()) throw Error(ErrorCode::kInterrupted, "stopped");
}

// Thread-safe.
class WriteProgress {
 public:
  using Listener = files::SharedProgress::Listener;
  // The listener is kept by reference.
  WriteProgress(const Listener& listener, std::uint64_t total, std::stop_token stop)
      : progress_(listener, total), stop_(std::move(stop)) {}

  // Errors: kInterrupted after a stop, and what the listener throws.
  void add(std::uint64_t bytes) {
    check_stop(stop_);
    progress_.add(bytes);
  }

 private:
  files::SharedProgress progress_;
  std::stop_token stop_;
};

}  // namespace halfbyte::convert
