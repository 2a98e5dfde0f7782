// Sums and texts of ranks that are far from each other: what takes long there is the way, not the bytes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace halfbyte::models {

// Gloo's ring takes 2 (N - 1) messages one after another, and the place of each is asked for first. Here pairs give
// each other what they have, then pairs of pairs: log2 N messages (two more where N is no power of two), and places
// are asked for some calls ahead, so that a message leaves when it is given. Errors: c10d's. One thread at a time.
class Peers {
 public:
  explicit Peers(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {}

  // Whether that takes less time than a ring, which sends fewer bytes where there are more than two.
  bool is_better_for(std::size_t values) const;
  // Makes them the sums of all ranks' values, the same bits in each rank. `rounded`: they go as bfloat16, and are added
  // in float32. Errors: kContract where another rank has not as many.
  void sum(std::span<float> values, bool rounded);
  // What each rank says, by rank. Errors: kInvalidArgument for more than there is a place for.
  std::vector<std::string> gather(const std::string& text);

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;
  // Where a message of another rank comes.
  struct Place {
    at::Tensor bytes;
    Work work;
  };

  template <class Message>
  void in_pairs(Message& message);
  template <class Message>
  void give(int other, Message& message, bool is_last);
  template <class Message>
  void take(int other, Message& message, bool is_last);
  template <class Message>
  void exchange(int other, Message& message);

  Place asked(int other, std::int64_t bytes, int tag);

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::map<int, std::deque<Place>> places_;  // of each rank that anything was ever taken from, in their order
};

}  // namespace halfbyte::models
