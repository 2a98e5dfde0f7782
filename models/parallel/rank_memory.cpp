#include "models/parallel/rank_memory.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include <halfbyte/error.h>

namespace halfbyte {
namespace {

constexpr int kSpins = 4000;  // about a tenth of a millisecond, before a thread sleeps
constexpr std::chrono::milliseconds kSlice{50};
// Between a rank's end and an error of those that wait for it: who started them says why it ended, and ends them.
constexpr std::int64_t kMourning = 16;  // slices
constexpr std::size_t kSlotBytes = kChunk * sizeof(float);

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  timespec time{0, std::chrono::nanoseconds(kSlice).count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

bool is_gone(std::int32_t process) { return process > 0 && ::kill(process, 0) != 0 && errno == ESRCH; }

// Two slots a rank: one is written while others may still read the one before.
std::size_t slots_offset(int all) { return static_cast<std::size_t>(all) * sizeof(Control); }
std::size_t letters_offset(int all) { return slots_offset(all) + 2 * static_cast<std::size_t>(all) * kSlotBytes; }

}  // namespace

void Count::wake() { ::syscall(SYS_futex, &value, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0); }

void Count::grow() {
  value.fetch_add(1);
  if (sleepers.load() > 0) wake();
}

RankMemory::RankMemory(std::byte* memory, std::vector<int> ranks, int own, int all, std::chrono::milliseconds patience)
    : memory_(memory),
      ranks_(std::move(ranks)),
      own_(own),
      all_(all),
      patience_(std::max<std::int64_t>(1, patience / kSlice)) {}

std::size_t RankMemory::bytes(int all) {
  return letters_offset(all) + static_cast<std::size_t>(all) * kLetters * sizeof(Letter);
}

Control& RankMemory::control(int place) const {
  return reinterpret_cast<Control*>(memory_)[ranks_[static_cast<std::size_t>(place)]];
}

std::byte* RankMemory::slot(int place, bool is_odd) const {
  const auto rank = static_cast<std::size_t>(ranks_[static_cast<std::size_t>(place)]);
  return memory_ + slots_offset(all_) + (2 * rank + (is_odd ? 1 : 0)) * kSlotBytes;
}

std::span<Letter> RankMemory::letters(int place) const {
  const auto rank = static_cast<std::size_t>(ranks_[static_cast<std::size_t>(place)]);
  return {reinterpret_cast<Letter*>(memory_ + letters_offset(all_)) + rank * kLetters, kLetters};
}

std::string RankMemory::named(int place) const {
  const std::int32_t process = control(place).process.load();
  return "rank " + std::to_string(ranks_[static_cast<std::size_t>(place)]) + " of " + std::to_string(all_) +
         (process > 0 ? " (process " + std::to_string(process) + ")" : "");
}

void RankMemory::wait_for(int place, Count& count, const std::function<bool()>& is_there) const {
  for (int i = 0; i < kSpins; ++i) {
    if (is_there()) return;
    pause();
  }
  count.sleepers.fetch_add(1);
  const struct Awake {
    Count& count;
    ~Awake() { count.sleepers.fetch_sub(1); }
  } awake{count};
  // Counted, not timed: while this process is stopped, nobody is late.
  std::int64_t gone = 0;
  for (std::int64_t slices = 0; !is_there(); ++slices) {
    gone += has_gone(place) ? 1 : 0;
    check(place, slices, gone);
    const std::uint32_t seen = count.value.load();
    if (!is_there()) futex_wait(count.value, seen);
  }
}

bool RankMemory::has_gone(int place) const {
  return control(place).state.load() == kLeft || is_gone(control(place).process.load());
}

void RankMemory::check(int place, std::int64_t slices, std::int64_t gone) const {
  const Control& other = control(place);
  if (gone > kMourning)
    throw Error(ErrorCode::kIo, named(place) + (other.state.load() == kLeft ? " has ended" : " was killed"));
  if (slices < patience_) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience_ * kSlice).count();
  throw Error(ErrorCode::kIo, named(place) + (other.state.load() == kAway ? " has not joined" : " has not come on") +
                                  " for " + std::to_string(seconds) + " s");
}

}  // namespace halfbyte
