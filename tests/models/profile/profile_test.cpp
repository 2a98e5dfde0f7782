// Profiles of work that is none: how time is shared out, what is kept, and what is not seen.
#include <halfbyte/profile.h>

#include <set>
#include <string>
#include <thread>

#include "models/profile/recorder.h"
#include "quant/thread_pool.h"
#include "tests/catch.h"
#include "tests/models/profile/trace_rows.h"

namespace halfbyte {
namespace {

using models::WorkCost;
using models::WorkScope;

const WorkTotals& of(const ProfileRecord& record, WorkKind kind) {
  return record.work.at(static_cast<std::size_t>(kind));
}

double sum_of_seconds(const ProfileRecord& record) {
  double out = 0;
  for (const WorkTotals& work : record.work) out += work.seconds;
  return out;
}

// Takes some time: returns when the clock has gone on.
void work_a_little() {
  const std::int64_t begin = quant::steady_now();
  while (quant::steady_now() < begin + 1000) continue;
}

// A pass of one layer, with a product in a module.
void run_pass(std::int64_t tokens = 1) {
  const auto pass = WorkScope::pass(tokens);
  const auto layer = WorkScope::layer(3);
  {
    const WorkScope work(WorkKind::kGateUp, [] { return WorkCost{10, 20}; });
    work_a_little();
  }
  const WorkScope modules(WorkKind::kModules);
  const auto product = WorkScope::module_product([] { return WorkCost{1, 2}; });
  work_a_little();
}

TEST_CASE("every kind of work has a name of its own and a title", "[profile]") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kWorkKinds; ++i) {
    const auto kind = static_cast<WorkKind>(i);
    CHECK(names.insert(name(kind)).second);
    CHECK(!title(kind).empty());
  }
  CHECK(name(WorkKind::kOther) == "other");
  CHECK(is_product(WorkKind::kHead));
  CHECK_FALSE(is_product(WorkKind::kAttention));
}

TEST_CASE("work within work is its own, and all of it together is the profile's time", "[profile]") {
  const Profile profile;
  for (int i = 0; i < 3; ++i) run_pass(2);
  const ProfileRecord record = profile.record();
  CHECK(record.passes == 3);
  CHECK(record.tokens == 6);
  CHECK(record.threads >= 1);
  CHECK(of(record, WorkKind::kGateUp).calls == 3);
  CHECK(of(record, WorkKind::kGateUp).bytes == 30);
  CHECK(of(record, WorkKind::kGateUp).flop == 60);
  CHECK(of(record, WorkKind::kModules).calls == 3);
  CHECK(of(record, WorkKind::kModuleProducts).calls == 3);
  CHECK(of(record, WorkKind::kModuleProducts).bytes == 3);
  CHECK(of(record, WorkKind::kHead).calls == 0);
  CHECK(of(record, WorkKind::kHead).seconds == 0);
  for (const WorkTotals& work : record.work) CHECK(work.seconds >= 0);
  CHECK(of(record, WorkKind::kGateUp).seconds >= 3e-6);
  CHECK(of(record, WorkKind::kModuleProducts).seconds >= 3e-6);
  CHECK(of(record, WorkKind::kModules).seconds < record.seconds - 6e-6);
  CHECK(sum_of_seconds(record) == Approx(record.seconds).epsilon(1e-9));
}

TEST_CASE("a module's product that has a kind of its own stays that", "[profile]") {
  const Profile profile;
  {
    const WorkScope head(WorkKind::kHead);
    const auto product = WorkScope::module_product([] { return WorkCost{1, 2}; });
  }
  const auto product = WorkScope::module_product([] { return WorkCost{1, 2}; });  // of a host's own
  const ProfileRecord record = profile.record();
  CHECK(of(record, WorkKind::kHead).calls == 1);
  CHECK(of(record, WorkKind::kModuleProducts).calls == 0);
}

TEST_CASE("what is asked of in the middle of a pass counts what is done", "[profile]") {
  const Profile profile;
  const auto pass = WorkScope::pass(1);
  run_pass();
  const ProfileRecord record = profile.record();
  CHECK(of(record, WorkKind::kGateUp).calls == 1);
  CHECK(sum_of_seconds(record) == Approx(record.seconds).epsilon(1e-9));
}

TEST_CASE("scopes deeper than any pass has lose nothing", "[profile]") {
  const Profile profile;
  const auto dig = [](const auto& self, int depth) -> void {
    const WorkScope work(depth % 2 ? WorkKind::kDown : WorkKind::kQkv);
    if (depth > 0) self(self, depth - 1);
  };
  for (int i = 0; i < 2; ++i) dig(dig, 40);
  const ProfileRecord record = profile.record();
  CHECK(of(record, WorkKind::kQkv).calls == 16);
  CHECK(sum_of_seconds(record) == Approx(record.seconds).epsilon(1e-9));
}

TEST_CASE("shared calls say how long their threads were at work, and waited", "[profile]") {
  const Profile profile({.traced_passes = 1});
  {
    const auto pass = WorkScope::pass(1);
    const WorkScope work(WorkKind::kDown);
    for (int i = 0; i < 50; ++i)
      quant::run_together(3, [](std::size_t) { work_a_little(); });
  }
  const ProfileRecord record = profile.record();
  const WorkTotals& down = of(record, WorkKind::kDown);
  CHECK(down.shared_seconds > 0);
  CHECK(down.shared_seconds <= down.seconds);
  CHECK(down.coming_seconds > 0);
  CHECK(down.waiting_seconds > 0);
  CHECK(down.coming_seconds + down.waiting_seconds <= 3 * down.shared_seconds - 50e-6);  // the caller's own work
  CHECK(of(record, WorkKind::kOther).shared_seconds == 0);
  for (const ProfileEvent& event : record.events) {
    CHECK(event.thread < 3);
    CHECK((event.kind == ProfileEvent::Kind::kShare) == (event.thread > 0));
    if (event.thread > 0) CHECK(event.work == WorkKind::kDown);
  }
}

TEST_CASE("a profile sees its own thread, and the innermost one its own time", "[profile]") {
  const Profile outer;
  std::jthread([] { run_pass(); }).join();
  {
    const Profile inner;
    run_pass();
    CHECK(inner.record().passes == 1);
  }
  CHECK(outer.record().passes == 0);
  run_pass();
  CHECK(outer.record().passes == 1);
  std::jthread([] {
    const Profile other;
    run_pass();
    CHECK(other.record().passes == 1);
  }).join();
  CHECK(outer.record().passes == 1);
}

TEST_CASE("events are kept of as many passes as were asked for, and of what follows them", "[profile]") {
  const auto events_with = [](const ProfileOptions& options) {
    const Profile profile(options);
    for (int i = 0; i < 4; ++i) {
      run_pass();
      const WorkScope head(WorkKind::kHead);
    }
    CHECK(profile.record().passes == 4);
    return profile.record();
  };
  constexpr std::size_t kEvents = 6;  // pass, layer, three kinds of work, head
  CHECK(events_with({}).events.empty());
  CHECK(events_with({.traced_passes = 2}).events.size() == 2 * kEvents);
  CHECK(events_with({.traced_passes = 2}).lost_events == 0);
  CHECK(events_with({.traced_passes = 9}).events.size() == 4 * kEvents);
  const ProfileRecord few = events_with({.traced_passes = 9, .most_events = 5});
  CHECK(few.events.size() == 5);
  CHECK(few.lost_events == 4 * kEvents - 5);
}

ProfileRecord traced_pass() {
  const Profile profile({.traced_passes = 1});
  run_pass(7);
  {
    const WorkScope work(WorkKind::kDown);
    quant::run_together(2, [](std::size_t) { work_a_little(); });
  }
  return profile.record();
}

TEST_CASE("a trace is JSON with what was done, nested in time, a thread a row", "[profile]") {
  const ProfileRecord records[] = {traced_pass(), traced_pass()};
  const auto rows = tests::trace_rows(chrome_trace(records));
  for (const auto& [thread, events] : rows) {
    CHECK(tests::are_nested(events));
    CHECK(tests::begin_of(events.front()) >= 0);
  }
  std::vector<std::string> names;
  for (const auto& event : rows.at(0)) names.push_back(event.at("name"));
  const std::vector<std::string> one = {"pass", "layers.3", "layers.3 gate_up", "layers.3 modules",
                                        "layers.3 module_products", "down", "waiting"};
  REQUIRE(names.size() == 2 * one.size());
  CHECK(std::equal(one.begin(), one.end(), names.begin()));
  CHECK(std::equal(one.begin(), one.end(), names.begin() + 7));
  CHECK(rows.at(0)[0].at("args") == nlohmann::json({{"tokens", 7}}));
  CHECK(rows.at(0)[2].at("args") == nlohmann::json({{"bytes", 10}, {"flops", 20}}));
  CHECK(tests::begin_of(rows.at(0)[0]) == 0);
}

TEST_CASE("a trace of nothing is a trace", "[profile]") {
  CHECK(tests::trace_rows(chrome_trace({})).empty());
  const ProfileRecord empty[] = {Profile().record()};
  CHECK(tests::trace_rows(chrome_trace(empty)).empty());
}

}  // namespace
}  // namespace halfbyte
