// Keys and values in plain memory: what forks share, and what is let go.
#include "models/cpu/fused_key_values.h"

#include <cstdint>
#include <cstring>
#include <memory>

#include "quant/activations.h"
#include "quant/int8_blocks.h"
#include "tests/catch.h"

namespace halfbyte::models::cpu {
namespace {

constexpr std::int64_t kTokens = quant::kBlockTokens;

FusedKeyValues made(KeyValues kind, Reach reach = {}) {
  return FusedKeyValues({.kv_heads = 2, .key_dim = 5, .value_dim = 3, .reach = reach}, Dtype::kBfloat16, kind);
}

TEST_CASE("fused keys and values: a fork shares every block until one of the two writes there", "[fused]") {
  FusedKeyValues one = made(KeyValues::kOperand);
  one.make_room(0, kTokens + 3);
  std::memset(one.key_blocks()[1], 7, static_cast<std::size_t>(2 * kTokens * 5 * 2));
  std::memset(one.value_blocks()[1], 9, static_cast<std::size_t>(2 * kTokens * 3 * 2));
  one.commit(kTokens + 3);
  const std::unique_ptr<LayerState> fork = one.fork();
  auto& other = static_cast<FusedKeyValues&>(*fork);
  CHECK(other.key_blocks()[0] == one.key_blocks()[0]);
  other.make_room(kTokens + 3, 1);
  CHECK(other.key_blocks()[0] == one.key_blocks()[0]);
  REQUIRE(other.key_blocks()[1] != one.key_blocks()[1]);
  for (const std::int64_t at : {0, 100, 2 * static_cast<int>(kTokens) * 5 * 2 - 1})
    CHECK(other.key_blocks()[1][at] == std::byte{7});
  for (const std::int64_t at : {0, 2 * static_cast<int>(kTokens) * 3 * 2 - 1})
    CHECK(other.value_blocks()[1][at] == std::byte{9});
  CHECK(one.bytes() == 2 * 2 * kTokens * (5 + 3) * 2);
  CHECK(one.bytes_of_token() == 2 * (5 + 3) * 2);
  CHECK(one.bytes_for(kTokens + 3) == one.bytes());
}

TEST_CASE("fused keys and values: what no later token sees is let go, and what is cut is there no more", "[fused]") {
  FusedKeyValues windowed = made(KeyValues::kOperand, {.window = 10});
  for (std::int64_t at = 0; at < 5 * kTokens; at += kTokens) {
    windowed.make_room(at, kTokens);
    windowed.commit(at + kTokens);
  }
  CHECK(windowed.key_blocks()[0] == nullptr);
  CHECK(windowed.key_blocks()[4] != nullptr);
  CHECK(windowed.least(5 * kTokens) > 0);
  CHECK(windowed.least(5 * kTokens) <= 5 * kTokens - KeyBlocks::kSlack);
  FusedKeyValues all = made(KeyValues::kOperand);
  all.make_room(0, 3 * kTokens);
  all.commit(3 * kTokens);
  CHECK(all.least(3 * kTokens) == 0);
  all.cut(kTokens);
  CHECK(all.bytes() == all.bytes_for(kTokens));
}

TEST_CASE("fused keys and values: codes begin as zeros, a quarter more than half of bfloat16 at most", "[fused]") {
  FusedKeyValues codes = made(KeyValues::kInt8);
  codes.make_room(0, 1);
  const std::int64_t bytes = quant::Int8Blocks{2, 5}.bytes();
  for (std::int64_t i = 0; i < bytes; ++i) REQUIRE(codes.key_blocks()[0][i] == std::byte{0});
  CHECK(codes.bytes() == bytes + quant::Int8Blocks{2, 3}.bytes());
  CHECK(codes.key_values() == KeyValues::kInt8);
}

}  // namespace
}  // namespace halfbyte::models::cpu
