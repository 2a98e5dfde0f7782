#include "quant/products/call.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "tests/catch.h"
#include "tests/quant/max_threads.h"

namespace halfbyte::quant {
namespace {

// Matrices of so many rows, large enough to be shared.
std::vector<Call> calls_of(const std::vector<std::size_t>& rows) {
  std::vector<Call> calls(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    calls[i].weight.out_features = rows[i];
    calls[i].weight.row_bytes = std::size_t{1} << 20;
    calls[i].rows = 1;
  }
  return calls;
}

TEST_CASE("every row of every matrix is in one chunk, whatever threads take at a time", "[quant]") {
  const Chunks::Take take = GENERATE(Chunks::Take::kOne, Chunks::Take::kSome);
  const int threads = GENERATE(1, 2, 5);
  const test::MaxThreads these(threads);
  for (const std::vector<std::size_t>& rows :
       std::vector<std::vector<std::size_t>>{{1}, {64}, {65, 1, 63}, {130}, {2048, 256, 256}, {40000}}) {
    const std::vector<Call> calls = calls_of(rows);
    std::vector<std::vector<std::atomic<int>>> seen;
    for (const std::size_t count : rows) seen.emplace_back(count);
    std::atomic<bool> is_sound = true;
    Chunks(calls, 64, take).for_each([&](const Chunks::Chunk& chunk) {
      const auto matrix = static_cast<std::size_t>(chunk.call - calls.data());
      if (matrix >= rows.size() || chunk.begin % 64 != 0 || chunk.begin >= chunk.end || chunk.end > rows[matrix] ||
          chunk.end - chunk.begin > 64) {
        is_sound = false;
        return;
      }
      for (std::size_t row = chunk.begin; row < chunk.end; ++row) ++seen[matrix][row];
    });
    CAPTURE(threads, static_cast<int>(take), rows);
    REQUIRE(is_sound);
    for (const auto& matrix : seen) CHECK(std::ranges::all_of(matrix, [](const auto& times) { return times == 1; }));
  }
}

TEST_CASE("every row of every matrix is in one stretch, or beside one, which has its matrix to itself", "[quant]") {
  const std::size_t streams = GENERATE(1, 2), longest_allowed = GENERATE(0, 96, 100000);
  const int threads = GENERATE(1, 2, 5);
  const test::MaxThreads these(threads);
  for (const std::vector<std::size_t>& rows :
       std::vector<std::vector<std::size_t>>{{1}, {32}, {65, 1, 63}, {130}, {2048, 256, 256}, {40000}}) {
    const std::vector<Call> calls = calls_of(rows);
    std::vector<std::vector<std::atomic<int>>> seen;
    for (const std::size_t count : rows) seen.emplace_back(count);
    std::atomic<bool> is_sound = true;
    std::atomic<int> count_beside = 0, longest = 0;
    const auto see = [&](const Chunks::Chunk& chunk) {
      const auto matrix = static_cast<std::size_t>(chunk.call - calls.data());
      if (matrix >= rows.size() || chunk.begin % 32 != 0 || chunk.begin >= chunk.end || chunk.end > rows[matrix]) {
        is_sound = false;
        return;
      }
      for (std::size_t row = chunk.begin; row < chunk.end; ++row) ++seen[matrix][row];
      int now = longest;
      while (now < static_cast<int>(chunk.end - chunk.begin) &&
             !longest.compare_exchange_weak(now, static_cast<int>(chunk.end - chunk.begin))) {
      }
    };
    Chunks(calls, 32, Chunks::Take::kSome, streams)
        .for_each_stretch(longest_allowed, [&](const Chunks::Chunk& chunk, const Chunks::Chunk& beside) {
          see(chunk);
          if (!beside.call) return;
          see(beside);
          ++count_beside;
        });
    CAPTURE(threads, streams, rows);
    REQUIRE(is_sound);
    for (const auto& matrix : seen) CHECK(std::ranges::all_of(matrix, [](const auto& times) { return times == 1; }));
    int chunks = 0;
    for (const std::size_t count : rows) chunks += static_cast<int>((count + 31) / 32);
    CHECK((count_beside > 0) == (streams == 2 && chunks > threads));
    CHECK(longest <= static_cast<int>(std::max<std::size_t>(longest_allowed, 32)));
    if (rows.front() >= 2048 && longest_allowed > 0) CHECK(longest > 32);
  }
}

}  // namespace
}  // namespace halfbyte::quant
