#include <halfbyte/shared_memory_group.h>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include <halfbyte/error.h>

#include "models/parallel/rank_memory.h"

namespace halfbyte {
namespace {

constexpr int kMostRanks = 256;

// The memory of all ranks' group is followed by that of the groups of its parts: a rank is in one of them at most.
class SharedMemoryGroup : public Group {
 public:
  // `keeper`: of the memory.
  SharedMemoryGroup(std::byte* memory, std::vector<int> ranks, int own, int all, const SharedMemoryOptions& options,
                    bool is_part, std::shared_ptr<const void> keeper)
      : keeper_(std::move(keeper)),
        base_(memory),
        options_(options),
        is_part_(is_part),
        memory_(memory + (is_part ? RankMemory::bytes(all) : 0), std::move(ranks), own, all, options.timeout),
        sent_(static_cast<std::size_t>(memory_.size())),
        received_(sent_.size()) {
    memory_.own().process.store(::getpid());
    memory_.own().state.store(kJoined);
  }
  ~SharedMemoryGroup() override {
    Control& own = memory_.own();
    own.state.store(kLeft);
    for (Count* count : {&own.step, &own.sent, &own.taken}) count->wake();
  }

  int rank() const noexcept override { return memory_.place(); }
  int size() const noexcept override { return memory_.size(); }

  void sum(std::span<float> values) override {
    for (std::size_t at = 0; at < values.size(); at += kChunk) {
      const std::span<float> part = values.subspan(at, std::min(kChunk, values.size() - at));
      begin(values.size(), std::as_bytes(part));
      meet(values.size());
      add(part);
    }
  }

  std::vector<std::string> gather(const std::string& text) override {
    const std::size_t room = kChunk * sizeof(float) - sizeof(std::uint64_t);
    if (text.size() > room) throw Error(ErrorCode::kInvalidArgument, "a text of a rank is too long");
    std::vector<std::byte> bytes(sizeof(std::uint64_t) + text.size());
    const std::uint64_t length = text.size();
    std::memcpy(bytes.data(), &length, sizeof length);
    std::memcpy(bytes.data() + sizeof length, text.data(), text.size());
    constexpr std::uint64_t kText = ~std::uint64_t{0};
    begin(kText, bytes);
    meet(kText);
    std::vector<std::string> out;
    for (int rank = 0; rank < size(); ++rank) {
      std::uint64_t theirs = 0;
      std::memcpy(&theirs, slot(rank), sizeof theirs);
      out.emplace_back(reinterpret_cast<const char*>(slot(rank) + sizeof theirs), std::min<std::size_t>(theirs, room));
    }
    return out;
  }

  void send(std::span<const float> values, int to) override {
    check_other(to);
    for (std::size_t at = 0; at < values.size(); at += kChunk) {
      const auto part = values.subspan(at, std::min(kChunk, values.size() - at));
      Letter& letter = free_letter();
      std::ranges::copy(part, letter.values);
      letter.number = sent_[static_cast<std::size_t>(to)]++;
      letter.count = values.size();
      letter.to.store(static_cast<std::uint32_t>(to) + 1);
      memory_.own().sent.grow();
    }
  }

  void receive(std::span<float> values, int from) override {
    check_other(from);
    for (std::size_t at = 0; at < values.size(); at += kChunk) {
      const auto part = values.subspan(at, std::min(kChunk, values.size() - at));
      Letter& letter = next_letter(from);
      if (letter.count != values.size()) fail_elsewhere(from);
      std::copy_n(letter.values, part.size(), part.data());
      ++received_[static_cast<std::size_t>(from)];
      letter.to.store(0);
      memory_.control(from).taken.grow();
    }
  }

  std::shared_ptr<Group> part(const std::vector<int>& ranks) override {
    if (part_ && part_ranks_ == ranks) return part_;
    const auto own = std::ranges::find(ranks, rank());
    const bool is_good = own != ranks.end() && std::ranges::adjacent_find(ranks, std::greater_equal<>()) == ranks.end();
    if (is_part_ || part_ || !is_good || ranks.front() < 0 || ranks.back() >= size())
      throw Error(ErrorCode::kInvalidArgument,
                  "rank " + std::to_string(rank()) +
                      " is in one part of a group, which names it among others in their order, and has no parts");
    part_ = std::make_shared<SharedMemoryGroup>(base_, ranks, static_cast<int>(own - ranks.begin()), memory_.all(),
                                                options_, /*is_part=*/true, keeper_);
    part_ranks_ = ranks;
    return part_;
  }

 private:
  std::byte* slot(int rank) const { return memory_.slot(rank, step_ % 2 != 0); }

  void begin(std::uint64_t count, std::span<const std::byte> bytes) {
    Control& own = memory_.own();
    ++step_;
    std::memcpy(slot(rank()), bytes.data(), bytes.size());
    own.counts[step_ % 2].store(count, std::memory_order_relaxed);
    own.step.grow();
  }

  bool has_begun(int rank) const {
    const std::uint32_t step = memory_.control(rank).step.value.load(std::memory_order_acquire);
    return static_cast<std::int32_t>(step - step_) >= 0;
  }

  // Until all have begun this call. None of them can be two calls further, because that needs this rank in the next.
  void meet(std::uint64_t count) const {
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == this->rank()) continue;
      Control& other = memory_.control(rank);
      memory_.wait_for(rank, other.step, [this, rank] { return has_begun(rank); });
      if (other.counts[step_ % 2].load(std::memory_order_relaxed) != count) fail_elsewhere(rank);
    }
  }

  [[noreturn]] void fail_elsewhere(int rank) const {
    throw Error(ErrorCode::kContract, memory_.named(rank) + " is at another step than rank " +
                                          std::to_string(memory_.ranks()[static_cast<std::size_t>(memory_.place())]) +
                                          ": ranks are to be given the same input and options");
  }

  void add(std::span<float> out) const {
    if (size() == 1) return;
    const auto* first = reinterpret_cast<const float*>(slot(0));
    const auto* second = reinterpret_cast<const float*>(slot(1));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = first[i] + second[i];
    for (int rank = 2; rank < size(); ++rank) {
      const auto* more = reinterpret_cast<const float*>(slot(rank));
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += more[i];
    }
  }

  void check_other(int other) const {
    if (other >= 0 && other < size() && other != rank()) return;
    throw Error(ErrorCode::kInvalidArgument, "rank " + std::to_string(rank()) + " of " + std::to_string(size()) +
                                                 " has nothing to give to or take from rank " + std::to_string(other));
  }

  // One of its own; while all are on their way, until whoever the first of them is for has taken one.
  Letter& free_letter() const {
    const std::span<Letter> letters = memory_.letters(rank());
    const auto found = [&] { return std::ranges::find_if(letters, [](const Letter& l) { return l.to.load() == 0; }); };
    while (found() == letters.end()) {
      const std::uint32_t to = letters.front().to.load();
      if (to == 0) continue;
      memory_.wait_for(static_cast<int>(to) - 1, memory_.own().taken, [&] { return found() != letters.end(); });
    }
    return *found();
  }

  Letter& next_letter(int from) const {
    const auto own = static_cast<std::uint32_t>(rank()) + 1;
    const std::uint32_t number = received_[static_cast<std::size_t>(from)];
    const std::span<Letter> letters = memory_.letters(from);
    const auto found = [&] {
      return std::ranges::find_if(letters, [&](const Letter& l) { return l.to.load() == own && l.number == number; });
    };
    memory_.wait_for(from, memory_.control(from).sent, [&] { return found() != letters.end(); });
    return *found();
  }

  std::shared_ptr<const void> keeper_;
  std::byte* base_;
  SharedMemoryOptions options_;
  bool is_part_;
  RankMemory memory_;
  std::uint32_t step_ = 0;
  std::vector<std::uint32_t> sent_, received_;  // letters to and from each rank
  std::vector<int> part_ranks_;
  std::shared_ptr<Group> part_;  // null: not made yet
};

std::shared_ptr<Group> join(std::span<std::byte> memory, int rank, int size, const SharedMemoryOptions& options,
                            std::shared_ptr<const void> keeper) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(memory.data()) % kLine == 0;
  if (size < 2 || size > kMostRanks || rank < 0 || rank >= size || !is_aligned ||
      memory.size() < shared_memory_bytes(size)) {
    throw Error(ErrorCode::kInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                                                 " cannot join: a group has from 2 to " + std::to_string(kMostRanks) +
                                                 " ranks, and memory for all of them");
  }
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_shared<SharedMemoryGroup>(memory.data(), std::move(ranks), rank, size, options, /*is_part=*/false,
                                             std::move(keeper));
}

}  // namespace

std::size_t shared_memory_bytes(int size) { return 2 * RankMemory::bytes(size); }

std::shared_ptr<Group> join_shared_memory(std::span<std::byte> memory, int rank, int size,
                                          const SharedMemoryOptions& options) {
  return join(memory, rank, size, options, nullptr);
}

std::shared_ptr<Group> join_shared_memory_file(int descriptor, int rank, int size, const SharedMemoryOptions& options) {
  struct stat found {};
  const std::size_t bytes = size > 0 && size <= kMostRanks ? shared_memory_bytes(size) : 0;
  if (::fstat(descriptor, &found) != 0 || bytes == 0 || static_cast<std::size_t>(found.st_size) < bytes)
    throw Error(ErrorCode::kInvalidArgument, "the memory of the ranks' group is not there; start them by one launcher");
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) throw Error(ErrorCode::kIo, "the memory of the ranks' group cannot be mapped");
  const std::shared_ptr<void> keeper(address, [bytes](void* mapped) { ::munmap(mapped, bytes); });
  return join({static_cast<std::byte*>(address), bytes}, rank, size, options, keeper);
}

}  // namespace halfbyte
