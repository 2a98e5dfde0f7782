// Ranks that run one model together, each with a part of its weights. Needs no LibTorch.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace halfbyte {

// All ranks call the same methods in the same order. One thread of a rank at a time. Errors of all: kIo naming the rank
// that is gone, or was waited for in vain; kContract when ranks are not at the same call.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const noexcept = 0;  // from 0
  virtual int size() const noexcept = 0;
  // Makes them the sums of all ranks' values, the same bits in each rank. Shape: equally many in each.
  virtual void sum(std::span<float> values) = 0;
  // What each rank says, by rank; some hundred bytes each.
  virtual std::vector<std::string> gather(const std::string& text) = 0;
};

}  // namespace halfbyte
