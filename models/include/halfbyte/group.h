// Ranks that run one model together, each with a part of its weights. Needs no LibTorch.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace halfbyte {

// All ranks call the same methods in the same order, but for send and receive. One thread of a rank at a time. Errors
// of all: kIo naming the rank that is gone, or was waited for in vain; kContract when ranks are not at the same call,
// where the group can tell.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const noexcept = 0;  // from 0
  virtual int size() const noexcept = 0;
  // Makes them the sums of all ranks' values, the same bits in each rank. Shape: equally many in each.
  virtual void sum(std::span<float> values) = 0;
  // The same where values may be rounded to bfloat16 on their way, which a group with a slow one does.
  virtual void sum_rounded(std::span<float> values) { sum(values); }
  // What each rank says, by rank; 128 KiB each at most, 400 KiB in all.
  virtual std::vector<std::string> gather(const std::string& text) = 0;

  // What stages of layers (pipeline parallelism) need besides; a group without them divides layers alone. Errors of
  // these defaults: kUnsupported.
  //
  // To one other rank, which receives equally many: in the order of sending. May return before they are received.
  virtual void send(std::span<const float> values, int to);
  virtual void receive(std::span<float> values, int from);
  // The group of those ranks, in their order: this one among them, ascending. The ranks of a part call it together; no
  // rank is in two. The group outlives it, and called again with the same ranks gives the same one: a process may load
  // two models.
  virtual std::shared_ptr<Group> part(const std::vector<int>& ranks);
};

}  // namespace halfbyte
