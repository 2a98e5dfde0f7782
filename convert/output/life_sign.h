// By which a part sees that another one goes on: small files that it writes anew while it does.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "loader/files/platform.h"

namespace halfbyte::convert {

// From one sign to the next where one is given up after `timeout` without any.
std::chrono::milliseconds between_signs(std::chrono::milliseconds timeout) noexcept;

class LifeSign {
 public:
  LifeSign(files::fs::path file, std::chrono::milliseconds timeout) : file_(std::move(file)), timeout_(timeout) {}
  // Called often; any thread. Errors: kIo, kNoResources.
  void show();

 private:
  files::fs::path file_;
  std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::uint64_t count_ = 0;
  std::chrono::steady_clock::time_point shown_ = {};
};

class LifeWatch {
 public:
  LifeWatch(std::vector<files::fs::path> files, std::chrono::milliseconds timeout);
  // Whether none of them has changed for the timeout.
  bool is_overdue();

 private:
  std::string signs() const;

  std::vector<files::fs::path> files_;
  std::chrono::milliseconds timeout_;
  std::string last_;
  std::chrono::steady_clock::time_point changed_, looked_;
};

}  // namespace halfbyte::convert
