// Events as chrome://tracing reads them. Source: "Trace Event Format" (Chromium's catapult), complete events and
// metadata.
#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include <halfbyte/profile.h>

namespace halfbyte {
namespace {

using nlohmann::ordered_json;
using Kind = ProfileEvent::Kind;

constexpr int kProcess = 1;
constexpr double kNanosecondsAMicrosecond = 1000;

struct Range {
  std::int64_t begin = 0, end = 0;
};

Range range_of(const std::vector<ProfileEvent>& events) {
  if (events.empty()) return {};
  Range out{events.front().begin, events.front().end};
  for (const ProfileEvent& event : events) out = {std::min(out.begin, event.begin), std::max(out.end, event.end)};
  return out;
}

ordered_json arguments_of(const ProfileEvent& event) {
  ordered_json out = ordered_json::object();
  if (event.tokens > 0) out["tokens"] = event.tokens;
  if (event.bytes > 0) out["bytes"] = event.bytes;
  if (event.flop > 0) out["flops"] = event.flop;
  return out;
}

// `zero`: the time that is 0 in the trace.
ordered_json json_of(const ProfileEvent& event, std::int64_t zero) {
  const auto microseconds = [](std::int64_t time) { return static_cast<double>(time) / kNanosecondsAMicrosecond; };
  return {{"name", name(event)},
          {"cat", event.kind == Kind::kWaiting ? "waiting" : name(event.work)},
          {"ph", "X"},
          {"ts", microseconds(event.begin - zero)},
          {"dur", microseconds(event.end - event.begin)},
          {"pid", kProcess},
          {"tid", event.thread},
          {"args", arguments_of(event)}};
}

// What the trace calls something.
ordered_json metadata(const char* what, int thread, const std::string& title) {
  return {{"name", what}, {"ph", "M"}, {"pid", kProcess}, {"tid", thread}, {"args", {{"name", title}}}};
}

}  // namespace

std::string name(const ProfileEvent& event) {
  const std::string layer = event.layer < 0 ? "" : "layers." + std::to_string(event.layer);
  switch (event.kind) {
    case Kind::kPass:
      return "pass";
    case Kind::kLayer:
      return layer;
    case Kind::kWaiting:
      return "waiting";
    case Kind::kWork:
    case Kind::kShare:
      break;
  }
  return (layer.empty() ? "" : layer + " ") + std::string(name(event.work));
}

// Made event by event: all of them as one JSON value would take many times their own memory.
std::string chrome_trace(std::span<const ProfileRecord> records) {
  std::string out = metadata("process_name", 0, "halfbyte").dump();
  std::set<int> threads;
  std::int64_t ended = 0;
  for (const ProfileRecord& record : records) {
    const Range range = range_of(record.events);
    for (const ProfileEvent& event : record.events) {
      const std::string title = event.thread == 0 ? "passes" : "thread " + std::to_string(event.thread);
      if (threads.insert(event.thread).second) out += ",\n" + metadata("thread_name", event.thread, title).dump();
      out += ",\n" + json_of(event, range.begin - ended).dump();
    }
    ended += range.end - range.begin;
  }
  return "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n" + out + "\n]}\n";
}

}  // namespace halfbyte
