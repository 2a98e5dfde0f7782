// Keys and values in 8 bits: what is stored, and attention over it on every level.
#include "quant/int8_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "quant/kernels/activation_kernels.h"
#include "quant/rows_alike.h"
#include "quant/with_activations.h"
#include "tests/catch.h"
#include "tests/quant/float_rows.h"
#include "tests/quant/levels.h"
#include "tests/quant/random_values.h"

namespace halfbyte::quant {
namespace {

using namespace halfbyte::quant::test;
using kernels::Table;

float scale_of(const Int8Blocks& blocks, const std::vector<std::byte>& block, std::int64_t head, std::int64_t token) {
  return std::bit_cast<float>(std::uint32_t{blocks.scales(block.data(), head)[token]} << 16);
}

float key_at(const Int8Blocks& blocks, const std::vector<std::byte>& block, std::int64_t head, std::int64_t token,
             std::int64_t i) {
  const std::int64_t at = i / 4 * kBlockTokens * 4 + token * 4 + i % 4;
  return (static_cast<float>(blocks.codes(block.data(), head)[at]) - 128) * scale_of(blocks, block, head, token);
}

float value_at(const Int8Blocks& blocks, const std::vector<std::byte>& block, std::int64_t head, std::int64_t token,
               std::int64_t i) {
  const std::int64_t at = token / 4 * blocks.row() * 4 + i * 4 + token % 4;
  return static_cast<float>(static_cast<signed char>(blocks.codes(block.data(), head)[at])) *
         scale_of(blocks, block, head, token);
}

TEST_CASE("codes are within half a step of the values, and the largest of them fit", "[activations]") {
  for (const std::int64_t head_dim : {1, 6, 64}) {
    const Int8Blocks blocks{2, head_dim};
    std::vector<std::byte> keys(static_cast<std::size_t>(blocks.bytes())), values = keys;
    const std::vector<float> x = normal(static_cast<std::size_t>(2 * kBlockTokens * head_dim), 11);
    const auto row = [&](std::int64_t head, std::int64_t token) {
      return x.data() + (head * kBlockTokens + token) * head_dim;
    };
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t token = 0; token < kBlockTokens; ++token) {
        blocks.store_key(row(head, token), keys.data(), head, token);
        blocks.store_value(row(head, token), values.data(), head, token);
      }
    }
    double worst = 0;
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t token = 0; token < kBlockTokens; ++token) {
        const float step = scale_of(blocks, keys, head, token);
        for (std::int64_t i = 0; i < head_dim; ++i) {
          const float wanted = row(head, token)[i];
          worst = std::max<double>(worst, std::abs(key_at(blocks, keys, head, token, i) - wanted) / step);
          worst = std::max<double>(worst, std::abs(value_at(blocks, values, head, token, i) - wanted) / step);
          CHECK(std::abs(wanted) <= 127 * step * 1.000001f);
        }
      }
    }
    CHECK(worst <= 0.5001);
    CHECK(worst > (head_dim == 1 ? 0.0 : 0.3));
  }
}

TEST_CASE("zeros stay zeros, and what is not finite shows", "[activations]") {
  const Int8Blocks blocks{1, 4};
  std::vector<std::byte> block(static_cast<std::size_t>(blocks.bytes()));
  const float zeros[4] = {}, tiny[4] = {1e-42f, 0, 0, 0};
  blocks.store_key(zeros, block.data(), 0, 0);
  CHECK(key_at(blocks, block, 0, 0, 0) == 0.0f);
  blocks.store_value(tiny, block.data(), 0, 1);
  CHECK(std::abs(value_at(blocks, block, 0, 1, 0)) < 1e-30f);
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    const float row[4] = {1, bad, 2, 3};
    blocks.store_value(row, block.data(), 0, 2);
    CHECK_FALSE(std::isfinite(value_at(blocks, block, 0, 2, 0)));
  }
}

// A sequence's blocks in 8 bits, and in float32 what they mean.
struct Sequence {
  std::vector<std::vector<std::byte>> keys, values, float_keys, float_values;
  std::vector<std::byte*> key_blocks, value_blocks, float_key_blocks, float_value_blocks;
};

std::byte* float_place(std::vector<std::byte>& block, std::int64_t head, std::int64_t token, std::int64_t head_dim) {
  return block.data() + (head * kBlockTokens + token) * head_dim * 4;
}

Sequence sequence_of(std::int64_t tokens, std::int64_t kv_heads, std::int64_t head_dim) {
  const Int8Blocks shape{kv_heads, head_dim};
  const std::int64_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  Sequence out;
  const auto bytes = static_cast<std::size_t>(shape.bytes());
  const auto float_bytes = static_cast<std::size_t>(kv_heads * kBlockTokens * head_dim * 4);
  for (auto* part : {&out.keys, &out.values})  // no numbers where nothing has been stored
    part->assign(static_cast<std::size_t>(blocks), std::vector<std::byte>(bytes, std::byte{0xff}));
  for (auto* part : {&out.float_keys, &out.float_values})
    part->assign(static_cast<std::size_t>(blocks), std::vector<std::byte>(float_bytes));
  for (std::int64_t token = 0; token < tokens; ++token) {
    const auto b = static_cast<std::size_t>(token / kBlockTokens);
    const std::int64_t place = token % kBlockTokens;
    for (std::int64_t head = 0; head < kv_heads; ++head) {
      const auto key = normal(static_cast<std::size_t>(head_dim), static_cast<unsigned>(token * 7 + head), 1.5f);
      const auto value = normal(static_cast<std::size_t>(head_dim), static_cast<unsigned>(token * 7 + head + 3));
      shape.store_key(key.data(), out.keys[b].data(), head, place);
      shape.store_value(value.data(), out.values[b].data(), head, place);
      for (std::int64_t i = 0; i < head_dim; ++i) {
        const float k = key_at(shape, out.keys[b], head, place, i), v = value_at(shape, out.values[b], head, place, i);
        std::memcpy(float_place(out.float_keys[b], head, place, head_dim) + i * 4, &k, 4);
        std::memcpy(float_place(out.float_values[b], head, place, head_dim) + i * 4, &v, 4);
      }
    }
  }
  for (std::size_t b = 0; b < out.keys.size(); ++b) {
    out.key_blocks.push_back(out.keys[b].data());
    out.value_blocks.push_back(out.values[b].data());
    out.float_key_blocks.push_back(out.float_keys[b].data());
    out.float_value_blocks.push_back(out.float_values[b].data());
  }
  return out;
}

struct Case {
  std::int64_t past, tokens, heads, kv_heads, head_dim, window;
  float softcap;
};

// `dtype`: of queries, which are rounded to bfloat16 in any case, and of the result.
std::vector<float> attended(const Table& table, const Case& c, Sequence& sequence, bool is_int8, std::int64_t first,
                            std::int64_t tokens, Dtype dtype = Dtype::kFloat32) {
  const std::vector<float> drawn = normal(static_cast<std::size_t>(c.tokens * c.heads * c.head_dim), 21);
  const auto queries = to_dtype(to_floats(to_dtype(drawn, Dtype::kBfloat16), Dtype::kBfloat16), dtype);
  std::vector<std::byte> out(static_cast<std::size_t>(tokens * c.heads * c.head_dim * size_bytes(dtype)));
  const SequenceBlocks blocks{0, tokens, c.past + first,
                              is_int8 ? sequence.key_blocks.data() : sequence.float_key_blocks.data(),
                              is_int8 ? sequence.value_blocks.data() : sequence.float_value_blocks.data()};
  Attend a{};
  a.sequences = &blocks;
  a.count = 1;
  a.heads = c.heads;
  a.kv_heads = c.kv_heads;
  a.head_dim = c.head_dim;
  a.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  a.softcap = c.softcap;
  a.window = c.window;
  a.queries = queries.data() + first * c.heads * c.head_dim * size_bytes(dtype);
  a.query_dtype = a.output_dtype = dtype;
  a.key_dtype = a.value_dtype = is_int8 ? Dtype::kInt8 : Dtype::kFloat32;
  a.output = out.data();
  attend(table, a);
  return to_floats(out, dtype);
}

double relative_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0, of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += std::pow(static_cast<double>(a[i]) - b[i], 2);
    of_b += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(squares / of_b);
}

// Where codes are multiplied as they lie, queries are in 8 or 16 bits.
double most_difference(const Table& table, const Case& c) {
  if (!table.int8_attention || c.tokens > 8) return 2e-6;
  return table.int8_attention->query_bytes == 1 ? 0.015 : 1e-4;
}

constexpr Case kCases[] = {
    {0, 1, 4, 2, 64, 0, 0},        {700, 1, 8, 1, 64, 0, 0},   {700, 5, 8, 2, 40, 0, 0},
    {130, 8, 3, 3, 6, 0, 0},       {300, 6, 4, 2, 80, 100, 0}, {90, 20, 4, 2, 64, 33, 0},
    {200, 3, 4, 4, 128, 0, 20.0f}, {10, 30, 2, 1, 33, 0, 0},   {70, 2, 14, 2, 600, 0, 0},
};

TEST_CASE("attention over codes is attention over what they mean, on every level", "[activations][levels]") {
  for (const Case& c : kCases) {
    Sequence sequence = sequence_of(c.past + c.tokens, c.kv_heads, c.head_dim);
    for (const Table* table : tables()) {
      INFO(table->name << ", " << c.tokens << " after " << c.past << ", " << c.heads << " heads of " << c.head_dim);
      const auto wanted = attended(*table, c, sequence, /*is_int8=*/false, 0, c.tokens);
      const auto found = attended(*table, c, sequence, /*is_int8=*/true, 0, c.tokens);
      CHECK(relative_difference(found, wanted) < most_difference(*table, c));
    }
  }
}

// As they lie, or in 16 bits, where the table has kernels for it.
TEST_CASE("attention of many tokens in bfloat16 over codes is attention over what they mean, on every level",
          "[activations][levels]") {
  for (const Case& c : {Case{90, 20, 4, 2, 64, 33, 0}, Case{10, 70, 4, 1, 80, 0, 0}, Case{0, 131, 4, 4, 128, 0, 20.0f},
                        Case{3, 41, 2, 1, 48, 0, 0}, Case{0, 20, 2, 1, 1024, 0, 0}}) {
    Sequence sequence = sequence_of(c.past + c.tokens, c.kv_heads, c.head_dim);
    for (const Table* table : tables()) {
      INFO(table->name << ", " << c.tokens << " after " << c.past << ", heads of " << c.head_dim);
      const auto wanted = attended(*table, c, sequence, /*is_int8=*/false, 0, c.tokens);
      const auto found = attended(*table, c, sequence, /*is_int8=*/true, 0, c.tokens, Dtype::kBfloat16);
      CHECK(relative_difference(found, wanted) < 4e-3);
    }
  }
}

TEST_CASE("tokens that count as many have the same attention over codes, to the bit, however passes are divided",
          "[activations][levels]") {
  const RowsAlike alike(RowsKind::kMany);
  for (const Case& c : {Case{37, 60, 4, 2, 64, 33, 0}, Case{2, 70, 4, 1, 80, 0, 0}}) {
    Sequence sequence = sequence_of(c.past + c.tokens, c.kv_heads, c.head_dim);
    for (const Table* table : tables()) {
      for (const std::int64_t cut : {1, 19, 29}) {
        INFO(table->name << ", " << cut << " of " << c.tokens);
        const auto attend_to = [&](std::int64_t first, std::int64_t tokens) {
          return attended(*table, c, sequence, /*is_int8=*/true, first, tokens, Dtype::kBfloat16);
        };
        const auto whole = attend_to(0, c.tokens), before = attend_to(0, cut), behind = attend_to(cut, c.tokens - cut);
        CHECK(std::equal(before.begin(), before.end(), whole.begin()));
        CHECK(std::equal(behind.rbegin(), behind.rend(), whole.rbegin()));
      }
    }
  }
}

TEST_CASE("a token of few gives over codes what it gives alone, bit for bit", "[activations][levels]") {
  for (const Case& c : kCases) {
    if (c.tokens > 8) continue;
    Sequence sequence = sequence_of(c.past + c.tokens, c.kv_heads, c.head_dim);
    for (const Table* table : tables()) {
      for (const bool is_int8 : {true, false}) {
        INFO(table->name << ", " << c.tokens << " after " << c.past << ", 8 bits: " << is_int8);
        const auto together = attended(*table, c, sequence, is_int8, 0, c.tokens);
        for (std::int64_t token = 0; token < c.tokens; ++token) {
          const auto alone = attended(*table, c, sequence, is_int8, token, 1);
          CHECK(std::equal(alone.begin(), alone.end(), together.begin() + token * c.heads * c.head_dim));
        }
      }
    }
  }
}

// Codes of weight 0 count for nothing, whatever their scale is.
TEST_CASE("a value over codes that is no number shows in tokens that see it, and in no other",
          "[activations][levels]") {
  const auto dtype = GENERATE(Dtype::kFloat32, Dtype::kBfloat16);
  for (const Case& c : {Case{70, 5, 4, 2, 64, 0, 0}, Case{300, 6, 4, 2, 80, 20, 0}, Case{70, 21, 4, 2, 64, 0, 0},
                        Case{70, 70, 4, 2, 80, 20, 0}}) {
    Sequence sequence = sequence_of(c.past + c.tokens, c.kv_heads, c.head_dim),
             spoilt = sequence_of(c.past + c.tokens, c.kv_heads, c.head_dim);
    const std::int64_t bad = c.past + 3;
    std::vector<float> row(static_cast<std::size_t>(c.head_dim), 1.0f);
    row[7] = std::numeric_limits<float>::infinity();
    const auto block = static_cast<std::size_t>(bad / kBlockTokens);
    for (std::int64_t head = 0; head < c.kv_heads; ++head)
      Int8Blocks{c.kv_heads, c.head_dim}.store_value(row.data(), spoilt.values[block].data(), head, bad % kBlockTokens);
    for (const Table* table : tables()) {
      const bool is_many = c.tokens > 8, has_words = table->wide_attention || table->bfloat16_attention;
      if (is_many ? !has_words || dtype == Dtype::kFloat32 : !table->int8_attention) continue;
      INFO(table->name << ", " << c.tokens << " tokens, heads of " << c.head_dim);
      const auto wanted = attended(*table, c, sequence, /*is_int8=*/true, 0, c.tokens, dtype);
      const auto found = attended(*table, c, spoilt, /*is_int8=*/true, 0, c.tokens, dtype);
      const std::int64_t before = 3 * c.heads * c.head_dim;
      CHECK(std::equal(wanted.begin(), wanted.begin() + before, found.begin()));
      CHECK_FALSE(std::isfinite(found[static_cast<std::size_t>(before) + 7]));
      const std::int64_t seen = c.window == 0 ? c.tokens : std::min(c.tokens, 3 + c.window);  // those up to it see it
      CHECK_FALSE(std::isfinite(found[static_cast<std::size_t>((seen - 1) * c.heads * c.head_dim) + 7]));
      const std::int64_t behind = seen * c.heads * c.head_dim;
      CHECK(std::equal(wanted.begin() + behind, wanted.end(), found.begin() + behind));
    }
  }
}

// A sequence of `head_dim` ones, and of minus ones, one head: tokens 0 and 1, whose values are 1 and -1.
Sequence opposites(std::int64_t head_dim) {
  Sequence sequence = sequence_of(2, 1, head_dim);
  const Int8Blocks shape{1, head_dim};
  for (std::int64_t token = 0; token < 2; ++token) {
    const std::vector<float> row(static_cast<std::size_t>(head_dim), token == 0 ? 1.0f : -1.0f);
    shape.store_key(row.data(), sequence.keys[0].data(), 0, token);
    shape.store_value(row.data(), sequence.values[0].data(), 0, token);
  }
  return sequence;
}

std::vector<float> attended_to(const Table& table, Sequence& sequence, const std::vector<float>& query) {
  std::vector<float> out(query.size());
  const SequenceBlocks blocks{0, 1, 1, sequence.key_blocks.data(), sequence.value_blocks.data()};
  Attend a{};
  a.sequences = &blocks;
  a.count = a.heads = a.kv_heads = 1;
  a.head_dim = static_cast<std::int64_t>(query.size());
  a.scale = 1.0f / std::sqrt(static_cast<float>(query.size()));
  a.queries = reinterpret_cast<const std::byte*>(query.data());
  a.query_dtype = a.output_dtype = Dtype::kFloat32;
  a.key_dtype = a.value_dtype = Dtype::kInt8;
  a.output = reinterpret_cast<std::byte*>(out.data());
  attend(table, a);
  return out;
}

TEST_CASE("the largest codes of long heads add up without an overflow", "[activations][levels]") {
  for (const std::size_t head_dim : {64, 256, 512, 576, 1024}) {
    Sequence sequence = opposites(static_cast<std::int64_t>(head_dim));
    for (const Table* table : tables()) {
      INFO(table->name << ", heads of " << head_dim);
      for (const float sign : {1.0f, -1.0f}) {
        const auto found = attended_to(*table, sequence, std::vector<float>(head_dim, sign * 3));
        CHECK(std::abs(found.front() - sign) < 0.01f);
        CHECK(std::abs(found.back() - sign) < 0.01f);
      }
    }
  }
}

TEST_CASE("what is not finite in a query or a value shows in what is attended to", "[activations][levels]") {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const Table* table : tables()) {
      INFO(table->name << ", " << bad);
      std::vector<float> query(64, 0.01f);
      Sequence sequence = opposites(64);
      CHECK(std::isfinite(attended_to(*table, sequence, query)[5]));
      std::vector<float> row(64, 0.5f);
      row[5] = bad;
      for (const std::int64_t token : {0, 1}) {
        Sequence spoilt = opposites(64);
        Int8Blocks{1, 64}.store_value(row.data(), spoilt.values[0].data(), 0, token);
        CHECK_FALSE(std::isfinite(attended_to(*table, spoilt, query)[5]));
      }
      query[5] = bad;
      CHECK_FALSE(std::isfinite(attended_to(*table, sequence, query)[5]));
    }
  }
}

}  // namespace
}  // namespace halfbyte::quant
