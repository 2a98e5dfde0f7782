// What ranks of one machine see of each other in the memory that they have in common, and how they wait. Needs no
// LibTorch.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace halfbyte {

inline constexpr std::size_t kLine = 64;         // of a cache
inline constexpr std::size_t kChunk = 64 << 10;  // floats that are added or sent at once
inline constexpr std::size_t kLetters = 32;      // chunks that a rank may send before one is received

enum State : std::uint32_t { kAway, kJoined, kLeft };

// A number that grows, and how many sleep until it does.
struct Count {
  std::atomic<std::uint32_t> value;
  std::atomic<std::uint32_t> sleepers;

  void grow();
  void wake();
};

// Of one rank.
struct alignas(kLine) Control {
  Count step;  // calls begun: what it gives to this one is there
  std::atomic<std::uint32_t> state;
  std::atomic<std::int32_t> process;
  std::atomic<std::uint64_t> counts[2];  // of a call's values, by whether its number is odd
  Count sent;                            // letters of its own
  Count taken;                           // and those of them that were received
};

// A chunk on its way from the rank whose letter it is.
struct alignas(kLine) Letter {
  std::atomic<std::uint32_t> to;  // the rank, and 1; 0: there is nothing in it
  std::uint32_t number;           // of those between the two
  std::uint64_t count;            // values of all chunks of the message
  alignas(kLine) float values[kChunk];
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

// One rank's view of the memory of `ranks` out of `all`: each may have a group of its own there.
class RankMemory {
 public:
  // `patience`: how long others are waited for. `ranks`: who is at which place; this one is at `own`.
  RankMemory(std::byte* memory, std::vector<int> ranks, int own, int all, std::chrono::milliseconds patience);
  static std::size_t bytes(int all);

  int size() const noexcept { return static_cast<int>(ranks_.size()); }
  int place() const noexcept { return own_; }
  int all() const noexcept { return all_; }
  const std::vector<int>& ranks() const noexcept { return ranks_; }

  // By places.
  Control& control(int place) const;
  Control& own() const { return control(own_); }
  std::byte* slot(int place, bool is_odd) const;  // kChunk floats
  std::span<Letter> letters(int place) const;
  std::string named(int place) const;  // "rank 1 of 2 (process 4242)"

  // Until `is_there`, of which `count` tells that something changed; what that rank owes. Errors: kIo naming it where
  // it has ended, or gives no sign.
  void wait_for(int place, Count& count, const std::function<bool()>& is_there) const;

 private:
  bool has_gone(int place) const;
  void check(int place, std::int64_t slices, std::int64_t gone) const;

  std::byte* memory_;
  std::vector<int> ranks_;
  int own_, all_;
  std::int64_t patience_;  // slices
};

}  // namespace halfbyte
