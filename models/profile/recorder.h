// What a pass tells the profile of its thread: scopes, which test one pointer where there is none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <halfbyte/profile.h>

#include "quant/call_watch.h"

namespace halfbyte::models {

// What a work reads and computes. Units: bytes; multiplications and additions.
struct WorkCost {
  std::int64_t bytes = 0, flop = 0;
};

// Of one profile. All memory is taken when it is made.
class Recorder final : public quant::CallWatch {
 public:
  explicit Recorder(const ProfileOptions& options);
  ~Recorder() { innermost_ = outer_; }

  static Recorder* of_this_thread() noexcept { return innermost_; }  // null: nobody records

  void open_pass(std::int64_t tokens) noexcept;
  void open_layer(std::int64_t layer) noexcept;
  void open(WorkKind kind, const WorkCost& cost) noexcept;
  void close() noexcept;  // what was opened last
  // Of the work that was opened last; kOther for a pass and a layer.
  WorkKind current() const noexcept;
  void note(const quant::SharedCall& call) noexcept override;

  ProfileRecord record() const;

 private:
  struct Frame {
    ProfileEvent event;        // its end is not known yet
    std::int64_t within = 0;   // of its time, what was opened in it took
  };
  struct Sums {  // nanoseconds
    std::int64_t calls = 0, time = 0, bytes = 0, flop = 0, shared = 0, coming = 0, waiting = 0;
  };
  // Deeper ones count as their outer ones.
  static constexpr std::size_t kMostFrames = 16;

  void push(const ProfileEvent& event) noexcept;
  void keep(const ProfileEvent& event) noexcept;
  Sums& sums_of(WorkKind kind) noexcept { return sums_[static_cast<std::size_t>(kind)]; }
  // The innermost frame; null: none.
  const Frame* top() const noexcept;
  bool is_tracing() const noexcept { return passes_ <= traced_passes_ && traced_passes_ > 0; }

  static constinit thread_local Recorder* innermost_;
  Recorder* outer_;
  std::int64_t begin_;
  std::int64_t passes_ = 0, tokens_ = 0, traced_passes_, lost_ = 0;
  std::size_t depth_ = 0;
  std::array<Frame, kMostFrames> frames_;
  std::array<Sums, kWorkKinds> sums_;
  std::size_t most_events_;
  std::vector<ProfileEvent> events_;
};

// While it lives, this thread does that work.
class WorkScope {
 public:
  explicit WorkScope(WorkKind kind) noexcept : WorkScope(kind, [] { return WorkCost{}; }) {}
  // cost() -> WorkCost is asked where somebody records.
  template <class Cost>
  WorkScope(WorkKind kind, const Cost& cost) noexcept
      : WorkScope(Recorder::of_this_thread(), [&](Recorder& recorder) { recorder.open(kind, cost()); }) {}
  ~WorkScope() {
    if (recorder_) [[unlikely]]
      recorder_->close();
  }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;

  // What no work in a pass or a layer covers is kOther's.
  static WorkScope pass(std::int64_t tokens) noexcept {
    return {Recorder::of_this_thread(), [&](Recorder& recorder) { recorder.open_pass(tokens); }};
  }
  static WorkScope layer(std::int64_t index) noexcept {
    return {Recorder::of_this_thread(), [&](Recorder& recorder) { recorder.open_layer(index); }};
  }
  // A product of a module: kModuleProducts among kModules. Elsewhere, as in the head, it has a kind already.
  template <class Cost>
  static WorkScope module_product(const Cost& cost) noexcept {
    Recorder* const found = Recorder::of_this_thread();
    return {found && found->current() == WorkKind::kModules ? found : nullptr,
            [&](Recorder& recorder) { recorder.open(WorkKind::kModuleProducts, cost()); }};
  }

 private:
  template <class Open>
  WorkScope(Recorder* recorder, const Open& open) noexcept : recorder_(recorder) {
    if (recorder_) [[unlikely]]
      open(*recorder_);
  }

  Recorder* recorder_;
};

}  // namespace halfbyte::models
