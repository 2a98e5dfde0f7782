// Where the time of a model's passes goes: which kinds of work, what products read and compute, and how long threads
// wait. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte {

// In the order of a pass.
enum class WorkKind : std::uint8_t {
  kEmbedding,
  kNorms,  // and residual sums
  kQkv,
  kPlaceHeads,  // norms of heads, rotary, into the cache
  kAttention,
  kAttentionOutput,
  kGateUp,
  kGates,
  kDown,
  kRouter,
  kExpertRows,  // choosing experts, sorting their rows, adding their results
  kExperts,     // their products
  kModules,     // what runs in LibTorch's operators
  kModuleProducts,
  kRankSums,  // of ranks that have parts of a model, waiting for them included
  kHead,
  kSampling,
  kOther,  // what is none of these
};
inline constexpr std::size_t kWorkKinds = 18;
std::string_view name(WorkKind kind) noexcept;   // "gate_up"
std::string_view title(WorkKind kind) noexcept;  // "gate, up", for people
bool is_product(WorkKind kind) noexcept;         // with weights

// What a kind of work came to. Kinds share no time. Units: seconds, bytes, multiplications and additions.
struct WorkTotals {
  WorkKind kind{};
  std::int64_t calls = 0;
  double seconds = 0;      // of the thread that runs the passes
  std::int64_t bytes = 0;  // weights, or keys and values, that were read; each counted once a call
  std::int64_t flop = 0;   // 0: not counted
  // Of calls that several threads shared: how long they took, and of all threads together, how long it was until each
  // came (all of the call where it did not) and how long there was no piece of work left for it until the call's end.
  double shared_seconds = 0;
  double coming_seconds = 0;
  double waiting_seconds = 0;
};

// Something that took time. Events of a thread lie within or beside each other.
struct ProfileEvent {
  enum class Kind : std::uint8_t {
    kPass,
    kLayer,
    kWork,
    kShare,    // another thread's part of it
    kWaiting,  // of the thread that runs the passes, for the others' parts
  };
  Kind kind{};
  WorkKind work = WorkKind::kOther;
  std::int32_t thread = 0;           // 0: the one that runs the passes
  std::int32_t layer = -1;           // -1: none
  std::int64_t begin = 0, end = 0;   // nanoseconds of std::chrono::steady_clock
  std::int64_t tokens = 0;           // of a pass
  std::int64_t bytes = 0, flop = 0;  // as above
};
// "pass", "layers.3", "layers.3 gate_up", "waiting".
std::string name(const ProfileEvent& event);

struct ProfileOptions {
  std::int64_t traced_passes = 0;       // events are kept until one more pass than these begins; 0: none
  std::size_t most_events = 256 << 10;  // room that is reserved for them
};

struct ProfileRecord {
  double seconds = 0;  // since the profile was made; the sum of all kinds'
  std::int64_t passes = 0, tokens = 0;
  int threads = 1;               // that a call may have
  std::vector<WorkTotals> work;  // one a kind, in their order
  std::vector<ProfileEvent> events;
  std::int64_t lost_events = 0;  // there was no room for
};

// Records the passes that this thread runs while it lives, the innermost profile's; other threads' are not seen. What
// LibTorch's or OpenMP's threads do is seen as the time of the thread that waits for them, and a GPU's work not at all.
// Nothing that is computed changes. Threads: made, asked and gone in one thread, outside of calls that run passes.
class Profile {
 public:
  explicit Profile(const ProfileOptions& options = {});
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  ProfileRecord record() const;  // so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// All events as chrome://tracing and Perfetto read them: JSON of complete events, a thread of ours a row; the records
// one after another, each from where the one before ends. Units: microseconds.
std::string chrome_trace(std::span<const ProfileRecord> records);

}  // namespace halfbyte
