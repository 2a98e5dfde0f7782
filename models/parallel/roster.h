// Who the ranks of a group are, and which of them is missing when a call of all fails, by a store that all reach.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <halfbyte/error.h>

namespace halfbyte::models {

class Roster {
 public:
  // Waits until all have come. Errors: kIo naming who has not in time; kContract naming who is there twice, says what
  // no rank says, or has another secret.
  Roster(c10::intrusive_ptr<c10d::Store> store, int rank, int size, const std::string& secret,
         std::chrono::milliseconds timeout);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return static_cast<int>(members_.size()); }
  std::string named(int rank) const;  // "rank 2 of 4 (node-b, process 77)"

  // Why a call of those ranks failed, about which was said `said`: who of them is not there to say so too within two
  // seconds is the one that all wait for. The first rank to know it tells the others. Precondition: what this rank has
  // of the group is gone by then, so that it fails for those too that wait for this one.
  Error explained(const std::vector<int>& ranks, const std::string& doing, const std::string& said) const;

  // Before this rank closes its connections: waits until the others have come so far too, two seconds at most. What
  // they have yet to read of this rank would be lost with the connection.
  void leave() const noexcept;

 private:
  struct Member {
    std::string host;
    std::int64_t process = 0;
    std::string nonce;
  };
  void take_seat();
  void meet();
  void await(const char* what, int rank, const std::string& missing);
  void prove(const std::string& secret);
  Member read(int rank) const;
  std::string proof_of(int rank, const std::string& secret) const;
  std::string verdict(const std::vector<int>& ranks, const std::string& doing, const std::string& said) const;
  std::vector<int> without(const char* what, const std::vector<int>& ranks) const;
  void part_from(const char* what, const std::vector<int>& ranks) const;

  std::string told() const;
  std::string tell(const std::string& verdict) const;

  bool has(const std::string& key) const;
  std::string get(const std::string& key) const;
  void set(const std::string& key, const std::string& text) const;

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  std::chrono::milliseconds timeout_;
  std::vector<Member> members_;  // by rank
};

// What was thrown, without LibTorch's call stack, in one line.
std::string one_line(const std::exception& error);

}  // namespace halfbyte::models
