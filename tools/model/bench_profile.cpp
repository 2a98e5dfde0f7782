#include "tools/model/bench_profile.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

#include "tools/cli/format.h"
#include "tools/cli/output.h"

namespace halfbyte::cli {
namespace {

using nlohmann::ordered_json;

// Of one pass, on average.
struct Average {
  explicit Average(const ProfileRecord& record) : passes(record.passes > 0 ? static_cast<double>(record.passes) : 1) {}
  double of(double sum) const { return sum / passes; }
  double of(std::int64_t sum) const { return static_cast<double>(sum) / passes; }
  double passes;
};

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// How the threads spent their time. Shares of the time of all of them together; the sum is 1.
struct ThreadShares {
  double at_work = 0, waiting = 0, coming = 0;  // of calls that they share
  double outside = 0;                           // of such calls
};

ThreadShares shares_of(const ProfileRecord& record) {
  double shared = 0, waiting = 0, coming = 0;
  for (const WorkTotals& work : record.work) {
    shared += work.shared_seconds;
    waiting += work.waiting_seconds;
    coming += work.coming_seconds;
  }
  const double all = record.threads * record.seconds;
  return {.at_work = share(record.threads * shared - waiting - coming, all),
          .waiting = share(waiting, all),
          .coming = share(coming, all),
          .outside = share(record.seconds - shared, record.seconds)};
}

// What is not counted is null.
ordered_json or_null(std::int64_t counted, double value) { return counted > 0 ? ordered_json(value) : ordered_json(); }

ordered_json json_of(const WorkTotals& work, const ProfileRecord& record, double memory) {
  const Average average(record);
  const double bytes_per_s = share(static_cast<double>(work.bytes), work.seconds);
  const double flop_per_s = share(static_cast<double>(work.flop), work.seconds);
  return {{"kind", name(work.kind)},
          {"calls", or_null(work.calls, average.of(work.calls))},
          {"seconds", average.of(work.seconds)},
          {"share", share(work.seconds, record.seconds)},
          {"bytes", or_null(work.bytes, average.of(work.bytes))},
          {"flop", or_null(work.flop, average.of(work.flop))},
          {"bytes_per_s", or_null(work.bytes, bytes_per_s)},
          {"memory_share", or_null(work.bytes, bytes_per_s / memory)},
          {"gflops", or_null(work.flop, flop_per_s / 1e9)},
          {"waiting_share", share(work.waiting_seconds, record.threads * work.seconds)},
          {"coming_share", share(work.coming_seconds, record.threads * work.seconds)}};
}

bool is_there(const WorkTotals& work) { return work.calls > 0 || work.kind == WorkKind::kOther; }

ordered_json json_of(const ProfileRecord& record, double memory) {
  ordered_json kinds = ordered_json::array();
  for (const WorkTotals& work : record.work) {
    if (is_there(work)) kinds.push_back(json_of(work, record, memory));
  }
  const ThreadShares threads = shares_of(record);
  return {{"passes", record.passes},
          {"tokens", record.tokens},
          {"pass_s", Average(record).of(record.seconds)},
          {"work", kinds},
          {"threads",
           {{"count", record.threads},
            {"at_work", threads.at_work},
            {"waiting", threads.waiting},
            {"coming", threads.coming},
            {"outside", threads.outside}}}};
}

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

std::string calls_of(double calls) {
  const bool is_whole = calls == static_cast<double>(static_cast<std::int64_t>(calls));
  return fixed(calls, is_whole ? 0 : 1);
}

std::vector<std::string> cells_of(const WorkTotals& work, const ProfileRecord& record, double memory) {
  const Average average(record);
  const double bytes_per_s = share(static_cast<double>(work.bytes), work.seconds);
  const double flop_per_s = share(static_cast<double>(work.flop), work.seconds);
  const auto where = [](bool is_counted, const std::string& text) { return is_counted ? text : std::string(); };
  return {std::string(title(work.kind)),
          where(work.calls > 0, calls_of(average.of(work.calls))),
          fixed(1e3 * average.of(work.seconds), 3),
          percent(share(work.seconds, record.seconds)),
          where(work.bytes > 0, fixed(bytes_per_s / 1e9, 1)),
          where(work.bytes > 0, percent(bytes_per_s / memory)),
          where(work.flop > 0, fixed(flop_per_s / 1e9, 1)),
          where(record.threads > 1,
                percent(share(work.waiting_seconds + work.coming_seconds, record.threads * work.seconds)))};
}

void print(const ProfileRecord& record, double memory) {
  Table table({{"", Align::kLeft},
               {"calls", Align::kRight},
               {"ms", Align::kRight},
               {"share", Align::kRight},
               {"GB/s", Align::kRight},
               {"of memory", Align::kRight},
               {"GFLOPS", Align::kRight},
               {"waiting", Align::kRight}});
  for (const WorkTotals& work : record.work) {
    if (is_there(work)) table.add(cells_of(work, record, memory));
  }
  table.print("  ");
  if (record.threads < 2) return;
  const ThreadShares threads = shares_of(record);
  print_line("  " + counted(record.threads, "thread") + ": " + percent(threads.at_work) + " at work together, " +
             percent(threads.waiting) + " with nothing left to do, " + percent(threads.coming) + " coming, " +
             percent(threads.outside) + " outside of shared calls");
}

ProfileRecord median_of(const std::vector<RunProfile>& runs, ProfileRecord RunProfile::*part) {
  std::vector<const ProfileRecord*> records;
  for (const RunProfile& run : runs) records.push_back(&(run.*part));
  const auto middle = records.begin() + static_cast<std::ptrdiff_t>((records.size() - 1) / 2);
  std::ranges::nth_element(records, middle, {}, &ProfileRecord::seconds);
  return **middle;
}

}  // namespace

RunProfile median_of(const std::vector<RunProfile>& runs) {
  return {median_of(runs, &RunProfile::prefill), median_of(runs, &RunProfile::decode)};
}

ordered_json json_of(const RunProfile& profile, double memory) {
  return {{"prefill", json_of(profile.prefill, memory)},
          {"decode", json_of(profile.decode, memory)},
          {"lost_events", profile.prefill.lost_events + profile.decode.lost_events}};
}

void print(const RunProfile& profile, double memory) {
  const auto head = [](const std::string& what, const ProfileRecord& record) {
    return "\n" + what + ", " + fixed(1e3 * Average(record).of(record.seconds), 3) + " ms";
  };
  print_line(head("a pass of prefill, of " + counted(profile.prefill.tokens, "token"), profile.prefill));
  print(profile.prefill, memory);
  print_line(head("a step of decode, of " + counted(profile.decode.passes, "step"), profile.decode));
  print(profile.decode, memory);
}

}  // namespace halfbyte::cli
