#include "models/parallel/roster.h"

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <halfbyte/network_group.h>

#include "models/parallel/network_address.h"
#include "models/parallel/within.h"
#include "tests/catch.h"

namespace halfbyte::models {
namespace {

using std::chrono::milliseconds;
using Store = c10::intrusive_ptr<c10d::Store>;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

// What each rank's work, on a thread of its own, ends with.
std::vector<std::string> errors_of(int ranks, const std::function<void(int rank)>& work) {
  std::vector<std::string> out(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { out[static_cast<std::size_t>(rank)] = error_of([&] { work(rank); }); });
  for (std::thread& thread : threads) thread.join();
  return out;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr milliseconds kLong = std::chrono::minutes(2);

}  // namespace

TEST_CASE("rosters: ranks know each other, and who is missing", "[ranks]") {
  const Store store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> said(3);
  const auto errors = errors_of(3, [&](int rank) {
    const Roster roster(store, rank, 3, "the same", kLong);
    const std::string named = roster.named(1);
    if (!has(named, "rank 1 of 3 (") || !has(named, "process ")) throw std::runtime_error(named);
    if (rank == 1) return;  // it has gone
    said[static_cast<std::size_t>(rank)] = roster.explained({0, 1, 2}, "a sum", "connection closed").what();
  });
  CHECK(errors == std::vector<std::string>(3, "no error"));
  CHECK(has(said[0], "rank 1 of 3 ("));
  CHECK(has(said[0], "has gone; rank "));
  CHECK(said[2] == said[0]);  // the first to know tells the other
}

TEST_CASE("rosters: a rank that is late is told from one that has gone", "[ranks]") {
  const Store store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = errors_of(2, [&](int rank) {
    const Roster roster(store, rank, 2, "", std::chrono::seconds(7));
    if (rank == 0) throw roster.explained({0, 1}, "a sum", "Timed out waiting 7000ms for recv operation to complete");
  });
  CHECK(has(errors[0], "has not come on for 7 s; rank 0 waited for it in a sum"));
}

TEST_CASE("rosters: another secret is refused by all, by name", "[ranks]") {
  const Store store = c10::make_intrusive<c10d::HashStore>();
  const auto errors = errors_of(3, [&](int rank) { Roster(store, rank, 3, rank == 2 ? "guess" : "known", kLong); });
  CHECK(has(errors[0], "rank 2 of 3"));
  CHECK(has(errors[0], "has another secret than rank 0"));
  CHECK(has(errors[1], "rank 2 of 3"));
  CHECK(has(errors[2], "has another secret than rank 2"));
}

TEST_CASE("rosters: who does not come, comes twice or is another program is named", "[ranks]") {
  const auto store = [] { return c10::make_intrusive<c10d::HashStore>(); };
  CHECK(has(error_of([&] { Roster(store(), 0, 2, "", milliseconds(50)); }), "rank 1 of 2 has not joined for 1 s"));
  const Store taken = store();
  taken->add("seat/1", 1);
  CHECK(has(error_of([&] { Roster(taken, 1, 2, "", kLong); }), "rank 1 of 2 is there already"));
  for (const std::string text :
       {"GET / HTTP/1.1", "{}", "[1]", R"({"host": 3, "process": 1, "nonce": "", "ranks": 2})"}) {
    INFO(text);
    const Store other = store();
    other->set("who/1", text);
    CHECK(has(error_of([&] { Roster(other, 0, 2, "", kLong); }), "rank 1 of 2 does not say who it is"));
  }
}

TEST_CASE("networks: what a rank may listen at", "[ranks]") {
  CHECK(address_of("") == "127.0.0.1");
  CHECK(address_of("lo") == "127.0.0.1");
  CHECK(has(error_of([] { address_of("nowhere"); }), "no interface 'nowhere' with an address; it has lo"));
  CHECK(is_loopback("127.0.0.2"));
  CHECK(is_loopback("localhost"));
  CHECK_FALSE(is_loopback("192.0.2.1"));
  CHECK(has(error_of([] { join_network(0, 2, {.host = "192.0.2.1"}); }), "listen on the loopback interface alone"));
  CHECK(has(error_of([] { join_network(2, 2); }), "rank 2 of 2 cannot join"));
}

TEST_CASE("calls that never end are left", "[ranks]") {
  std::promise<void> never;
  CHECK(error_of([&] { within(milliseconds(1), [wait = never.get_future().share()] { wait.get(); }); }) == "timed out");
  never.set_value();
  CHECK(within(kLong, [] { return 3; }) == 3);
}

}  // namespace halfbyte::models
