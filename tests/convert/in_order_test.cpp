#include "convert/in_order.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/catch.h"

using namespace halfbyte::convert;

TEST_CASE("in order: whoever brings the next value consumes all that lie ready", "[convert]") {
  std::vector<int> seen;
  InOrder<int> values([&](int value) { seen.push_back(value); });
  values.put(2, 12);
  values.put(1, 11);
  CHECK(seen.empty());
  values.put(0, 10);
  CHECK(seen == std::vector{10, 11, 12});
  values.put(3, 13);
  CHECK(seen == std::vector{10, 11, 12, 13});
}

TEST_CASE("in order: nothing is consumed after an error", "[convert]") {
  std::vector<int> seen;
  InOrder<int> values([&](int value) {
    if (value == 11) throw std::runtime_error("eleven");
    seen.push_back(value);
  });
  values.put(1, 11);
  values.put(2, 12);
  CHECK_THROWS_AS(values.put(0, 10), std::runtime_error);
  values.put(3, 13);
  CHECK(seen == std::vector{10});
}

TEST_CASE("in order: threads pass a turnstile one at a time, and each value is consumed once", "[convert]") {
  constexpr std::uint64_t kCount = 2000;
  Turnstile turnstile;
  std::atomic<std::uint64_t> next = 0;
  std::vector<std::uint64_t> passed, consumed;  // without a lock of their own
  InOrder<std::uint64_t> values([&](std::uint64_t value) { consumed.push_back(value); });
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::uint64_t number = next++; number < kCount; number = next++) {
        turnstile.wait(number, {});
        passed.push_back(number);
        turnstile.pass();
        values.put(number, number);
      }
    });
  }
  threads.clear();
  std::vector<std::uint64_t> expected(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) expected[i] = i;
  CHECK(passed == expected);
  CHECK(consumed == expected);
}

TEST_CASE("in order: a stop wakes those who wait at a turnstile", "[convert]") {
  Turnstile turnstile;
  std::stop_source stop;
  bool was_let_through = true;
  std::jthread waiting([&] { was_let_through = turnstile.wait(1, stop.get_token()); });
  stop.request_stop();
  waiting.join();
  CHECK_FALSE(was_let_through);
}
