// Sums and texts of ranks that are far from each other: what takes long there is the way, not the bytes.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
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
  // What each rank says, by rank. Errors: kInvalidArgument for more than there is a place for in all.
  std::vector<std::string> gather(const std::string& text);
  // Values for one other rank, in their order. The receiver may come to them later: some are on their way by then.
  // Errors: kContract where it wants another number of them.
  void send(std::span<const float> values, int to);
  void receive(std::span<float> values, int from);

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;
  // Where a piece of another rank's message comes.
  struct Place {
    at::Tensor bytes;
    Work work;
  };
  struct Sent {
    at::Tensor bytes;
    std::vector<Work> pieces;
    void wait() const;
  };

  template <class Message>
  void in_pairs(Message& message);
  template <class Message>
  void give(int other, Message& message, bool is_last);
  template <class Message>
  void take(int other, Message& message, bool is_last);
  template <class Message>
  void exchange(int other, Message& message);

  // Where messages of one kind come, and what a place for one has: a longer one comes in pieces. Units: bytes.
  struct Kind {
    int tag;
    std::int64_t room;
  };
  static constexpr Kind kShared{1, 512 << 10};  // sums and texts; Group's own send has tag 0
  static constexpr Kind kLetters{3, 8 << 20};

  Sent given(int other, const Kind& kind, const at::Tensor& bytes);
  template <class Use>
  void take(int other, const Kind& kind, std::optional<std::int64_t> bytes, const Use& use);
  Place next_place(int other, const Kind& kind);
  void ask(int other, const Kind& kind, const at::Tensor& into);

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::map<std::pair<int, int>, std::deque<Place>> places_;  // by other rank and kind, in their order
  std::map<int, std::deque<Sent>> letters_;                  // by receiver
};

}  // namespace halfbyte::models
