// Calls that OpenMP's threads share: as those that the pool's share (thread_pool_test.cpp), but for who comes.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "quant/call_watch.h"
#include "quant/thread_pool.h"
#include "tests/catch.h"
#include "tests/quant/exact_products.h"
#include "tests/quant/max_threads.h"

namespace halfbyte::quant {
namespace {

using namespace halfbyte::quant::test;

// The sum of 0 ... count - 1, each piece taken once by whoever is free.
std::int64_t sum_of_pieces(int threads, std::int64_t count) {
  std::atomic<std::int64_t> next = 0, sum = 0;
  run_together(threads, [&](std::size_t) {
    for (std::int64_t piece; (piece = next.fetch_add(1)) < count;) sum += piece;
  });
  return sum;
}

// Of a call of three.
int team_of_a_call() {
  std::atomic<int> out = 0;
  run_together(3, [&](std::size_t) { out = team_size(); });
  return out;
}

// Whether OpenMP gives this process more than one.
bool has_team() {
  std::atomic<int> size = 0;
  run_in_team(
      3, [](void* out, std::size_t) { *static_cast<std::atomic<int>*>(out) = team_size(); }, &size);
  return size > 1;
}

// In a child that this process forks. One that waits for threads it does not have is ended.
template <class Work>
bool works_in_child(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(work() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status == 0;
}

// First here: alone in a process, as ctest runs it, nothing has asked for OpenMP's threads but the host.
TEST_CASE(
    "among OpenMP's threads: a child of a process that had them does everything itself, though it is the first to ask",
    "[threads]") {
  has_team();
  CHECK(works_in_child([] {
    const AmongOpenMp among;
    return sum_of_pieces(3, 100) == 4950 && team_of_a_call() == 1;
  }));
}

TEST_CASE("among OpenMP's threads: every piece is done once, however many threads come", "[threads]") {
  const AmongOpenMp among;
  for (int i = 0; i < 500; ++i) REQUIRE(sum_of_pieces(1 + i % 5, 100) == 4950);
}

TEST_CASE("among OpenMP's threads: no more come than were asked for, each with a number of its own", "[threads]") {
  const AmongOpenMp among;
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> calls = 0, twice = 0;
    std::atomic<unsigned> numbers = 0;
    run_together(3, [&](std::size_t thread) {
      ++calls;
      if (numbers.fetch_or(1u << thread) & 1u << thread) ++twice;
    });
    REQUIRE(calls <= 3);
    REQUIRE(twice == 0);
    REQUIRE(numbers < 8);
  }
}

TEST_CASE("among OpenMP's threads: they come while one lives, and after it the pool's do", "[threads]") {
  if (!has_team()) HALFBYTE_SKIP("OpenMP has no second thread here");
  CHECK(team_of_a_call() == 1);
  {
    const AmongOpenMp outer;
    CHECK(team_of_a_call() > 1);
    {
      const AmongOpenMp inner;
      CHECK(team_of_a_call() > 1);
    }
    CHECK(team_of_a_call() > 1);
    std::atomic<int> of_another = 0;
    std::jthread([&] { of_another = team_of_a_call(); }).join();
    CHECK(of_another == 1);
  }
  CHECK(team_of_a_call() == 1);
  try {
    const AmongOpenMp among;
    throw std::runtime_error("scope");
  } catch (const std::runtime_error&) {
  }
  CHECK(team_of_a_call() == 1);
}

TEST_CASE("among OpenMP's threads: who watches calls sees the pool's", "[threads]") {
  class : public CallWatch {
   public:
    void note(const SharedCall&) noexcept override { ++calls; }
    int calls = 0;
  } watch;
  const AmongOpenMp among;
  CHECK(team_of_a_call() == 1);
  CHECK(watch.calls == 1);
}

TEST_CASE("among OpenMP's threads: what a thread throws is thrown by the call, and the next call works", "[threads]") {
  const AmongOpenMp among;
  for (int i = 0; i < 100; ++i) {
    std::atomic<int> next = 0;
    CHECK_THROWS_WITH(run_together(3,
                                   [&](std::size_t) {
                                     while (next < 50) {
                                       if (next.fetch_add(1) == 20) throw std::runtime_error("piece 20");
                                     }
                                   }),
                      "piece 20");
    CHECK_THROWS_AS(run_together(3, [](std::size_t) { throw std::out_of_range("each"); }), std::out_of_range);
    REQUIRE(sum_of_pieces(3, 10) == 45);
  }
}

TEST_CASE("among OpenMP's threads: a call within a call is done by its caller", "[threads]") {
  const AmongOpenMp among;
  std::atomic<std::int64_t> next = 0, sum = 0;
  run_together(3, [&](std::size_t) {
    while (next.fetch_add(1) < 20) {
      const AmongOpenMp inner;
      const std::thread::id caller = std::this_thread::get_id();
      run_together(3, [&](std::size_t thread) {
        if (thread != 0 || std::this_thread::get_id() != caller) sum += 1000;
      });
      CHECK_NOTHROW(sum_of_pieces(3, 10));
      ++sum;
    }
  });
  CHECK(sum == 20);
  if (has_team()) CHECK(team_of_a_call() > 1);
}

TEST_CASE("among OpenMP's threads: a call within an OpenMP region is done by its caller", "[threads]") {
  std::atomic<int> wrong = 0;
  run_in_team(
      3,
      [](void* count, std::size_t) {
        const AmongOpenMp among;
        const std::thread::id caller = std::this_thread::get_id();
        run_together(3, [&](std::size_t) {
          if (std::this_thread::get_id() != caller) ++*static_cast<std::atomic<int>*>(count);
        });
      },
      &wrong);
  CHECK(wrong == 0);
}

TEST_CASE("among OpenMP's threads: several threads of a host call at once, with and without", "[threads]") {
  std::vector<std::jthread> hosts;
  std::atomic<int> right = 0;
  for (int host = 0; host < 4; ++host) {
    hosts.emplace_back([&, host] {
      std::optional<AmongOpenMp> among;
      if (host % 2 == 0) among.emplace();
      for (int i = 0; i < 200; ++i) right += sum_of_pieces(3, 40) == 780;
    });
  }
  hosts.clear();
  CHECK(right == 800);
}

TEST_CASE("among OpenMP's threads: products are the same, bit for bit", "[threads]") {
  const test::MaxThreads three(3);
  constexpr Shape kLarge{260, 1024, 128, 128};
  for (const Scheme& scheme : schemes()) {
    const Packed packed = packed_for(kLarge, scheme.id);
    for (const std::int64_t rows : {1, 3, 40}) {
      for (const Arithmetic arithmetic : {Arithmetic::kFloat, Arithmetic::kInt8}) {
        INFO(scheme.name << ", " << rows << " rows, " << name(arithmetic));
        const std::vector<float> input = gaussian(static_cast<std::size_t>(rows * kLarge.in_features), 5);
        std::vector<float> alone(static_cast<std::size_t>(rows * kLarge.out_features)), among = alone;
        const auto multiply_into = [&](std::vector<float>& out) {
          linear(packed.matrix(),
                 {reinterpret_cast<const std::byte*>(input.data()), Dtype::kFloat32, rows, nullptr, Dtype::kFloat32,
                  reinterpret_cast<std::byte*>(out.data()), Dtype::kFloat32, arithmetic});
        };
        multiply_into(alone);
        {
          const AmongOpenMp scope;
          multiply_into(among);
        }
        CHECK(alone == among);
      }
    }
  }
}

TEST_CASE("among OpenMP's threads: after a fork the caller does everything", "[threads]") {
  const AmongOpenMp outer;
  REQUIRE(sum_of_pieces(3, 100) == 4950);
  CHECK(works_in_child([] {  // within the scope
    return sum_of_pieces(3, 100) == 4950 && sum_of_pieces(5, 100) == 4950 && team_of_a_call() == 1;
  }));
  CHECK(works_in_child([] {  // in one of its own, and in another of its threads
    const AmongOpenMp among;
    std::atomic<bool> is_right = false;
    std::jthread([&] {
      const AmongOpenMp among_there;
      is_right = sum_of_pieces(3, 100) == 4950;
    }).join();
    return is_right && sum_of_pieces(3, 100) == 4950;
  }));
  CHECK(works_in_child([] { return works_in_child([] { return sum_of_pieces(3, 100) == 4950; }); }));
  CHECK(sum_of_pieces(3, 100) == 4950);
}

TEST_CASE("a model that has threads of its own keeps them among OpenMP's", "[threads]") {
  const test::MaxThreads three(3);
  if (!has_team()) HALFBYTE_SKIP("OpenMP has no second thread here");
  {
    const OwnThreads own;
    const AmongOpenMp among;
    CHECK(team_of_a_call() == 1);
  }
  const AmongOpenMp among;
  CHECK(team_of_a_call() > 1);
}

}  // namespace
}  // namespace halfbyte::quant
