// OpenMP's number of threads, as if there were so many cores, while it lives.
#pragma once

#include "quant/threads.h"

namespace halfbyte::quant::test {

class MaxThreads {
 public:
  explicit MaxThreads(int count) { set_max_threads(count); }
  ~MaxThreads() { set_max_threads(before_); }
  MaxThreads(const MaxThreads&) = delete;
  MaxThreads& operator=(const MaxThreads&) = delete;

 private:
  const int before_ = max_threads();
};

}  // namespace halfbyte::quant::test
