#include "models/profile/recorder.h"

#include <algorithm>

#include "quant/threads.h"

namespace halfbyte::models {

constinit thread_local Recorder* Recorder::innermost_ = nullptr;

Recorder::Recorder(const ProfileOptions& options)
    : outer_(std::exchange(innermost_, this)),
      traced_passes_(options.traced_passes),
      most_events_(options.most_events) {
  if (traced_passes_ > 0) events_.reserve(most_events_);
  begin_ = quant::steady_now();
}

const Recorder::Frame* Recorder::top() const noexcept {
  return depth_ == 0 ? nullptr : &frames_[std::min(depth_, kMostFrames) - 1];
}

WorkKind Recorder::current() const noexcept { return top() ? top()->event.work : WorkKind::kOther; }

void Recorder::push(const ProfileEvent& event) noexcept {
  if (depth_ < kMostFrames) {
    frames_[depth_] = {event};
    frames_[depth_].event.begin = quant::steady_now();
  }
  ++depth_;
}

void Recorder::open_pass(std::int64_t tokens) noexcept {
  ++passes_;
  tokens_ += tokens;
  push({.kind = ProfileEvent::Kind::kPass, .tokens = tokens});
}

void Recorder::open_layer(std::int64_t layer) noexcept {
  push({.kind = ProfileEvent::Kind::kLayer, .layer = static_cast<std::int32_t>(layer)});
}

void Recorder::open(WorkKind kind, const WorkCost& cost) noexcept {
  push({.kind = ProfileEvent::Kind::kWork,
        .work = kind,
        .layer = top() ? top()->event.layer : -1,
        .bytes = cost.bytes,
        .flop = cost.flop});
}

void Recorder::close() noexcept {
  const std::int64_t now = quant::steady_now();
  if (--depth_ >= kMostFrames) return;
  Frame& frame = frames_[depth_];
  frame.event.end = now;
  const std::int64_t whole = now - frame.event.begin;
  Sums& sums = sums_of(frame.event.work);
  ++sums.calls;
  sums.time += whole - frame.within;
  sums.bytes += frame.event.bytes;
  sums.flop += frame.event.flop;
  if (depth_ > 0) frames_[depth_ - 1].within += whole;
  keep(frame.event);
}

void Recorder::keep(const ProfileEvent& event) noexcept {
  if (!is_tracing()) return;
  if (events_.size() < most_events_)
    events_.push_back(event);
  else
    ++lost_;
}

void Recorder::note(const quant::SharedCall& call) noexcept {
  ProfileEvent event = top() ? top()->event : ProfileEvent{};
  Sums& sums = sums_of(event.work);
  sums.shared += call.end - call.begin;
  event.kind = ProfileEvent::Kind::kShare;
  event.tokens = event.bytes = event.flop = 0;  // of the whole work
  for (std::size_t thread = 0; thread < call.threads.size(); ++thread) {
    const auto [came, left] = call.threads[thread];
    sums.coming += (came == 0 ? call.end : came) - call.begin;
    if (came == 0) continue;
    sums.waiting += call.end - left;
    if (thread == 0) continue;
    event.thread = static_cast<std::int32_t>(thread);
    event.begin = came;
    event.end = left;
    keep(event);
  }
  event.kind = ProfileEvent::Kind::kWaiting;
  event.thread = 0;
  event.begin = call.threads.front().left;
  event.end = call.end;
  keep(event);
}

ProfileRecord Recorder::record() const {
  constexpr double kSecond = 1e-9;
  ProfileRecord out;
  out.passes = passes_;
  out.tokens = tokens_;
  out.threads = quant::max_threads();
  const std::int64_t whole = quant::steady_now() - begin_;
  out.seconds = kSecond * static_cast<double>(whole);
  std::int64_t rest = whole;
  for (std::size_t i = 0; i < kWorkKinds; ++i) {
    const auto kind = static_cast<WorkKind>(i);
    const Sums& sums = sums_[i];
    const bool is_rest = kind == WorkKind::kOther;  // the last
    if (!is_rest) rest -= sums.time;
    out.work.push_back({.kind = kind,
                        .calls = is_rest ? 0 : sums.calls,
                        .seconds = kSecond * static_cast<double>(is_rest ? rest : sums.time),
                        .bytes = sums.bytes,
                        .flop = sums.flop,
                        .shared_seconds = kSecond * static_cast<double>(sums.shared),
                        .coming_seconds = kSecond * static_cast<double>(sums.coming),
                        .waiting_seconds = kSecond * static_cast<double>(sums.waiting)});
  }
  out.events = events_;
  out.lost_events = lost_;
  return out;
}

}  // namespace halfbyte::models
