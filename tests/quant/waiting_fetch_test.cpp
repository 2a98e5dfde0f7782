#include "quant/waiting_fetch.h"

#include <vector>

#include "quant/next_products.h"
#include "quant/thread_pool.h"
#include "quant/with_kernels.h"
#include "tests/catch.h"
#include "tests/quant/max_threads.h"

namespace halfbyte::quant {
namespace {

constexpr std::size_t kAll = std::size_t{1} << 40;

TEST_CASE("each thread's reading begins where its share of all rows does", "[threads]") {
  const std::vector<std::byte> first(60 * 100), second(40 * 100);
  const std::vector<ReadMatrix> matrices{{first.data(), 100, 60}, {second.data(), 100, 40}};
  const auto reading = [&](std::size_t thread) { return first_reading(matrices, thread, 4, 1, kAll); };
  CHECK(reading(0).places[0] == first.data());
  CHECK(reading(0).bytes == 25 * 100);
  CHECK(reading(2).places[0] == first.data() + 50 * 100);
  CHECK(reading(2).bytes == 10 * 100);  // and not beyond the first matrix
  CHECK(reading(3).places[0] == second.data() + 15 * 100);
  CHECK(reading(3).bytes == 25 * 100);
  CHECK(reading(4).bytes == 0);
}

TEST_CASE("a reading in two places has the beginnings of both halves of a thread's share", "[threads]") {
  const std::vector<std::byte> rows(100 * 10);
  const std::vector<ReadMatrix> matrix{{rows.data(), 10, 100}};
  const Reading reading = first_reading(matrix, 1, 2, 2, kAll);
  REQUIRE(reading.streams == 2);
  CHECK(reading.places[0] == rows.data() + 50 * 10);
  CHECK(reading.places[1] == rows.data() + 75 * 10);
  CHECK(reading.bytes == 25 * 10);
  CHECK(first_reading(matrix, 1, 2, 2, 300).bytes == 150);
}

TEST_CASE("nothing is read of no rows, by no threads, or in no places", "[threads]") {
  const std::vector<std::byte> rows(100);
  const std::vector<ReadMatrix> matrix{{rows.data(), 10, 10}}, empty{{nullptr, 0, 0}};
  CHECK(first_reading({}, 0, 2, 1, kAll).bytes == 0);
  CHECK(first_reading(empty, 0, 2, 1, kAll).bytes == 0);
  CHECK(first_reading(matrix, 0, 0, 1, kAll).bytes == 0);
  CHECK(first_reading(matrix, 0, 2, 0, kAll).bytes == 0);
  CHECK(first_reading(matrix, 0, 2, 3, kAll).bytes == 0);
}

// How often it fetched until there was nothing left.
int fetches(WaitingFetch::Reader& reader) {
  int count = 0;
  while (reader.fetch_some()) ++count;
  return count;
}

TEST_CASE("a reader fetches what is announced once, and then what is announced next", "[threads]") {
  const std::vector<std::byte> rows(64 << 10);
  const std::vector<ReadMatrix> large{{rows.data(), 1024, 64}}, small{{rows.data(), 64, 4}};
  WaitingFetch all;
  WaitingFetch::Reader reader(all, 1), beyond(all, 2);
  CHECK(fetches(reader) == 0);
  all.announce(large, 2, 1);
  CHECK(fetches(reader) == (32 << 10) / 512);  // eight lines at a time
  CHECK(fetches(reader) == 0);
  CHECK(fetches(beyond) == 0);
  all.announce(large, 2, 1);
  CHECK(reader.fetch_some());
  all.announce(small, 2, 1);
  CHECK(fetches(reader) == 1);
  all.announce({}, 2, 1);
  CHECK(fetches(reader) == 0);
}

TEST_CASE("more matrices than there is room for are announced as far as it goes", "[threads]") {
  const std::vector<std::byte> rows(1024);
  const std::vector<ReadMatrix> many(2 * WaitingFetch::kMostMatrices, {rows.data(), 512, 2});
  WaitingFetch all;
  WaitingFetch::Reader reader(all, 0);
  all.announce(many, 1, 1);
  CHECK(fetches(reader) == 2);  // its first matrix
}

TEST_CASE("weights of the products that come next are announced to the threads that share calls", "[threads]") {
  const test::MaxThreads two(2);
  const std::vector<std::byte> codes(256 * 128);
  Product product{};
  product.weight.rows = codes.data();
  product.weight.scheme = nullptr;
  product.weight.dense_dtype = Dtype::kBfloat16;
  product.weight.out_features = 256;
  product.weight.in_features = 64;
  WaitingFetch::Reader reader(waiting_fetch(), 1);
  static_cast<void>(fetches(reader));  // of what was announced before
  const int rows = GENERATE(1, 2);
  CAPTURE(rows);
  fetch_while_waiting(std::span(&product, 1), rows);
  const std::size_t streams = rows == 1 ? row_streams(kernels::kernels()) : 1;
  CHECK(fetches(reader) == static_cast<int>(128 * 128 / streams / 512));
  fetch_while_waiting({}, 1);
  CHECK(fetches(reader) == 0);
}

}  // namespace
}  // namespace halfbyte::quant
