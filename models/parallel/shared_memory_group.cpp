#include <halfbyte/shared_memory_group.h>

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include <halfbyte/error.h>

namespace halfbyte {
namespace {

constexpr std::size_t kLine = 64;         // of a cache
constexpr std::size_t kChunk = 64 << 10;  // floats that are added at once
constexpr int kMostRanks = 256;
constexpr int kSpins = 4000;  // about a tenth of a millisecond, before a thread sleeps
constexpr std::chrono::milliseconds kSlice{50};
// Between a rank's end and an error of those that wait for it: who started them says why it ended, and ends them.
constexpr std::int64_t kMourning = 16;  // slices

enum State : std::uint32_t { kAway, kJoined, kLeft };

// Of one rank, written by it alone, but for `sleepers`.
struct alignas(kLine) Control {
  std::atomic<std::uint32_t> step;  // calls begun: what it gives to this one is there
  std::atomic<std::uint32_t> state;
  std::atomic<std::int32_t> process;
  std::atomic<std::uint64_t> counts[2];  // of a call's values, by whether its number is odd
  std::atomic<std::uint32_t> sleepers;   // others that wait for `step`
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free);

// Two slots a rank: one is written while others may still read the one before.
std::size_t slot_offset(int size, std::size_t slot) {
  return static_cast<std::size_t>(size) * sizeof(Control) + slot * kChunk * sizeof(float);
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  timespec time{0, std::chrono::nanoseconds(kSlice).count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

bool is_gone(std::int32_t process) { return process > 0 && ::kill(process, 0) != 0 && errno == ESRCH; }

class SharedMemoryGroup : public Group {
 public:
  SharedMemoryGroup(std::span<std::byte> memory, int rank, int size, const SharedMemoryOptions& options)
      : memory_(memory), rank_(rank), size_(size), patience_(std::max<std::int64_t>(1, options.timeout / kSlice)) {
    own().process.store(::getpid());
    own().state.store(kJoined);
  }
  ~SharedMemoryGroup() override {
    own().state.store(kLeft);
    futex_wake(own().step);
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }

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
    for (int rank = 0; rank < size_; ++rank) {
      std::uint64_t theirs = 0;
      std::memcpy(&theirs, slot(rank), sizeof theirs);
      out.emplace_back(reinterpret_cast<const char*>(slot(rank) + sizeof theirs), std::min<std::size_t>(theirs, room));
    }
    return out;
  }

 private:
  Control& control(int rank) const { return reinterpret_cast<Control*>(memory_.data())[rank]; }
  Control& own() const { return control(rank_); }
  std::byte* slot(int rank) const {
    return memory_.data() + slot_offset(size_, static_cast<std::size_t>(2 * rank) + step_ % 2);
  }

  void begin(std::uint64_t count, std::span<const std::byte> bytes) {
    ++step_;
    std::memcpy(slot(rank_), bytes.data(), bytes.size());
    own().counts[step_ % 2].store(count, std::memory_order_relaxed);
    own().step.store(step_);
    if (own().sleepers.load() > 0) futex_wake(own().step);
  }

  // Until all have begun this call. None of them can be two calls further, because that needs this rank in the next.
  void meet(std::uint64_t count) const {
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      wait_for(rank);
      if (control(rank).counts[step_ % 2].load(std::memory_order_relaxed) == count) continue;
      throw Error(ErrorCode::kContract, named(rank) + " is at another step than rank " + std::to_string(rank_) +
                                            ": ranks are to be given the same input and options");
    }
  }

  bool has_begun(int rank) const {
    return static_cast<std::int32_t>(control(rank).step.load(std::memory_order_acquire) - step_) >= 0;
  }

  void wait_for(int rank) const {
    for (int i = 0; i < kSpins; ++i) {
      if (has_begun(rank)) return;
      pause();
    }
    Control& other = control(rank);
    other.sleepers.fetch_add(1);
    const struct Awake {
      Control& other;
      ~Awake() { other.sleepers.fetch_sub(1); }
    } awake{other};
    // Counted, not timed: while this process is stopped, nobody is late.
    std::int64_t gone = 0;
    for (std::int64_t slices = 0; !has_begun(rank); ++slices) {
      gone += has_gone(rank) ? 1 : 0;
      check(rank, slices, gone);
      const std::uint32_t seen = other.step.load();
      if (!has_begun(rank)) futex_wait(other.step, seen);
    }
  }

  bool has_gone(int rank) const { return control(rank).state.load() == kLeft || is_gone(control(rank).process.load()); }

  void check(int rank, std::int64_t slices, std::int64_t gone) const {
    const Control& other = control(rank);
    if (gone > kMourning)
      throw Error(ErrorCode::kIo, named(rank) + (other.state.load() == kLeft ? " has ended" : " was killed"));
    if (slices < patience_) return;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience_ * kSlice).count();
    throw Error(ErrorCode::kIo, named(rank) + (other.state.load() == kAway ? " has not joined" : " has not come on") +
                                    " for " + std::to_string(seconds) + " s");
  }

  std::string named(int rank) const {
    const std::int32_t process = control(rank).process.load();
    return "rank " + std::to_string(rank) + " of " + std::to_string(size_) +
           (process > 0 ? " (process " + std::to_string(process) + ")" : "");
  }

  void add(std::span<float> out) const {
    const auto* first = reinterpret_cast<const float*>(slot(0));
    const auto* second = reinterpret_cast<const float*>(slot(1));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = first[i] + second[i];
    for (int rank = 2; rank < size_; ++rank) {
      const auto* more = reinterpret_cast<const float*>(slot(rank));
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += more[i];
    }
  }

  std::span<std::byte> memory_;
  int rank_, size_;
  std::int64_t patience_;  // slices
  std::uint32_t step_ = 0;
};

class MappedGroup : public Group {
 public:
  MappedGroup(std::span<std::byte> memory, int rank, int size, const SharedMemoryOptions& options)
      : memory_(memory), group_(join_shared_memory(memory, rank, size, options)) {}
  ~MappedGroup() override {
    group_.reset();
    ::munmap(memory_.data(), memory_.size());
  }
  int rank() const noexcept override { return group_->rank(); }
  int size() const noexcept override { return group_->size(); }
  void sum(std::span<float> values) override { group_->sum(values); }
  std::vector<std::string> gather(const std::string& text) override { return group_->gather(text); }

 private:
  std::span<std::byte> memory_;
  std::shared_ptr<Group> group_;
};

}  // namespace

std::size_t shared_memory_bytes(int size) { return slot_offset(size, 2 * static_cast<std::size_t>(size)); }

std::shared_ptr<Group> join_shared_memory(std::span<std::byte> memory, int rank, int size,
                                          const SharedMemoryOptions& options) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(memory.data()) % kLine == 0;
  if (size < 2 || size > kMostRanks || rank < 0 || rank >= size || !is_aligned ||
      memory.size() < shared_memory_bytes(size)) {
    throw Error(ErrorCode::kInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                                                 " cannot join: a group has from 2 to " + std::to_string(kMostRanks) +
                                                 " ranks, and memory for all of them");
  }
  return std::make_shared<SharedMemoryGroup>(memory, rank, size, options);
}

std::shared_ptr<Group> join_shared_memory_file(int descriptor, int rank, int size, const SharedMemoryOptions& options) {
  struct stat found {};
  const std::size_t bytes = size > 0 && size <= kMostRanks ? shared_memory_bytes(size) : 0;
  if (::fstat(descriptor, &found) != 0 || bytes == 0 || static_cast<std::size_t>(found.st_size) < bytes)
    throw Error(ErrorCode::kInvalidArgument, "the memory of the ranks' group is not there; start them by one launcher");
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) throw Error(ErrorCode::kIo, "the memory of the ranks' group cannot be mapped");
  return std::make_shared<MappedGroup>(std::span(static_cast<std::byte*>(address), bytes), rank, size, options);
}

}  // namespace halfbyte
