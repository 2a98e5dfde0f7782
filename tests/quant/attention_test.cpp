// Attention: every level against its definition in double.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <halfbyte/linear.h>

#include "quant/activations.h"
#include "quant/rows_alike.h"
#include "quant/with_activations.h"
#include "tests/catch.h"
#include "tests/quant/largest_difference.h"
#include "tests/quant/levels.h"
#include "tests/quant/random_values.h"

namespace halfbyte::quant {
namespace {

using namespace halfbyte::quant::test;
using kernels::Table;

struct Shape {
  std::int64_t heads, kv_heads, head_dim;
  float softcap;
  std::int64_t window;
  bool is_chunked = false;
  std::vector<float> sinks = {};
};

constexpr std::int64_t kPasts[] = {700, 3, 511, 64};
constexpr std::int64_t kRows = std::size(kPasts), kBlocks = 12;
using Tokens = std::array<std::int64_t, kRows>;

// Of kRows sequences. Values are of `dtype`, and what they are kept in begins as float32.
struct Attended {
  Dtype dtype;
  std::vector<float> queries, keys, values;
  std::vector<std::byte> query_bytes, key_bytes, value_bytes;
  std::vector<std::byte*> key_blocks, value_blocks;  // kBlocks a row
  Tokens tokens;

  std::int64_t first(std::int64_t row) const {
    return std::accumulate(tokens.begin(), tokens.begin() + row, std::int64_t{0});
  }
};

// Units: values of a cache.
std::size_t place_of(const Shape& s, std::int64_t row, std::int64_t head, std::int64_t key) {
  const std::int64_t block = row * kBlocks + key / kBlockTokens;
  return static_cast<std::size_t>(((block * s.kv_heads + head) * kBlockTokens + key % kBlockTokens) * s.head_dim);
}

std::vector<std::byte*> blocks_of(const Shape& s, Dtype dtype, std::vector<std::byte>& cache) {
  std::vector<std::byte*> out;
  for (std::int64_t i = 0; i < kRows * kBlocks; ++i)
    out.push_back(cache.data() + place_of(s, 0, 0, i * kBlockTokens) * static_cast<std::size_t>(size_bytes(dtype)));
  return out;
}

std::vector<std::byte> kept(const std::vector<float>& values, Dtype dtype) {
  std::vector<std::byte> out(values.size() * static_cast<std::size_t>(size_bytes(dtype)));
  convert(bytes(values), Dtype::kFloat32, out.data(), dtype, static_cast<std::int64_t>(values.size()));
  return out;
}

std::vector<float> floats_of(const std::vector<std::byte>& kept, Dtype dtype) {
  std::vector<float> out(kept.size() / static_cast<std::size_t>(size_bytes(dtype)));
  convert(kept.data(), dtype, bytes(out), Dtype::kFloat32, static_cast<std::int64_t>(out.size()));
  return out;
}

// Keeps the values, which are what can be kept from there on.
void keep(const Shape& s, Attended& c) {
  c.query_bytes = kept(c.queries, c.dtype);
  c.key_bytes = kept(c.keys, c.dtype);
  c.value_bytes = kept(c.values, c.dtype);
  c.queries = floats_of(c.query_bytes, c.dtype);
  c.keys = floats_of(c.key_bytes, c.dtype);
  c.values = floats_of(c.value_bytes, c.dtype);
  c.key_blocks = blocks_of(s, c.dtype, c.key_bytes);
  c.value_blocks = blocks_of(s, c.dtype, c.value_bytes);
}

Attended make_attended(const Shape& s, const Tokens& tokens, Dtype dtype) {
  Attended out;
  out.dtype = dtype;
  out.tokens = tokens;
  out.queries = normal(static_cast<std::size_t>(out.first(kRows) * s.heads * s.head_dim), 10, 2);
  out.keys = normal(place_of(s, kRows, 0, 0), 11, 0.5f);
  out.values = normal(out.keys.size(), 12);
  keep(s, out);
  return out;
}

// Of `rows` rows the tokens [begin, end), or as many of them as a row has.
void attend_some(const Table& table, const Shape& s, const Attended& c, std::int64_t rows, std::int64_t begin,
                 std::int64_t end, std::vector<std::byte>& out) {
  std::vector<SequenceBlocks> sequences;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t count = std::min(c.tokens[static_cast<std::size_t>(row)], end) - begin;
    if (count > 0)
      sequences.push_back({c.first(row) + begin, count, kPasts[row] + begin, c.key_blocks.data() + row * kBlocks,
                           c.value_blocks.data() + row * kBlocks});
  }
  Attend a{};
  a.sequences = sequences.data();
  a.count = static_cast<std::int64_t>(sequences.size());
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.head_dim = s.head_dim;
  a.scale = 0.25f;
  a.softcap = s.softcap;
  a.window = s.window;
  a.is_chunked = s.is_chunked;
  a.sinks = s.sinks.empty() ? nullptr : s.sinks.data();
  a.queries = c.query_bytes.data();
  a.query_dtype = a.key_dtype = a.value_dtype = a.output_dtype = c.dtype;
  a.output = out.data();
  attend(table, a);
}

// Of the first rows, the tokens before `cut` in a call of their own.
std::vector<float> attended(const Table& table, const Shape& s, const Attended& c, std::int64_t rows = kRows,
                            std::int64_t cut = 0) {
  const std::int64_t count = c.first(rows) * s.heads * s.head_dim;
  std::vector<std::byte> out(static_cast<std::size_t>(count * size_bytes(c.dtype)));
  if (cut > 0) attend_some(table, s, c, rows, 0, cut, out);
  attend_some(table, s, c, rows, cut, std::numeric_limits<std::int64_t>::max(), out);
  return floats_of(out, c.dtype);
}

std::int64_t first_seen(const Shape& s, std::int64_t end) {
  if (s.window == 0) return 0;
  return s.is_chunked ? (end - 1) / s.window * s.window : std::max<std::int64_t>(0, end - s.window);
}

// One head of a row's token by its definition.
std::vector<double> attend_in_double(const Shape& s, const Attended& c, std::int64_t row, std::int64_t token,
                                     std::int64_t head) {
  const float* q = c.queries.data() + ((c.first(row) + token) * s.heads + head) * s.head_dim;
  const std::int64_t end = kPasts[row] + token + 1;
  std::vector<double> out(static_cast<std::size_t>(s.head_dim));
  double sum = s.sinks.empty() ? 0.0 : std::exp(static_cast<double>(s.sinks[static_cast<std::size_t>(head)]));
  for (std::int64_t key = first_seen(s, end); key < end; ++key) {
    const std::size_t at = place_of(s, row, head / (s.heads / s.kv_heads), key);
    double score = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(s.head_dim); ++i) score += 0.25 * q[i] * c.keys[at + i];
    if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
    sum += std::exp(score);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] += std::exp(score) * c.values[at + i];
  }
  for (double& value : out) value /= sum;
  return out;
}

std::vector<double> attend_in_double(const Shape& s, const Attended& c) {
  std::vector<double> out;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t i = 0; i < c.tokens[static_cast<std::size_t>(row)] * s.heads; ++i) {
      const auto head = attend_in_double(s, c, row, i / s.heads, i % s.heads);
      out.insert(out.end(), head.begin(), head.end());
    }
  }
  return out;
}

const Shape kShapes[] = {{8, 1, 64, 0, 0},
                         {4, 4, 32, 0, 0},
                         {6, 2, 80, 0, 0},
                         {8, 2, 20, 0, 100},
                         {4, 2, 64, 30, 0},
                         {10, 2, 127, 5, 513},
                         {4, 2, 64, 0, 64, true},
                         {4, 2, 32, 0, 33},
                         {4, 1, 16, 0, 7, true},
                         {4, 1, 32, 0, 513, true},
                         {4, 2, 64, 0, 0, false, {-3.0f, 0.5f, 4.0f, 60.0f}},
                         {30, 1, 16, 0, 0},
                         {130, 1, 8, 0, 70},
                         {6, 3, 32, 0, 100, false, {1.0f, 2.0f, -90.0f, 0.0f, 3.0f, 1.5f}}};
// One token has a way of its own; the last are several blocks; sequences of both go together.
constexpr Tokens kTokenCounts[] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {41, 41, 41, 41}, {1, 37, 1, 2}};

// Measured: 3.9e-6; of bfloat16 .0083, of which rounding the result alone is .0078.
struct Bound {
  Dtype dtype;
  double largest;
};
constexpr Bound kBounds[] = {{Dtype::kFloat32, 1e-5}, {Dtype::kBfloat16, 0.01}};

TEST_CASE("attention is what its definition says, on every level", "[activations][levels]") {
  for (const Shape& shape : kShapes) {
    for (const Tokens& tokens : kTokenCounts) {
      for (const Bound& bound : kBounds) {
        const Attended c = make_attended(shape, tokens, bound.dtype);
        const std::vector<double> wanted = attend_in_double(shape, c);
        for (const Table* table : tables()) {
          INFO(table->name << " heads " << shape.heads << "/" << shape.kv_heads << " of " << shape.head_dim);
          CHECK(largest_difference(attended(*table, shape, c), wanted) < bound.largest);
        }
      }
    }
  }
}

// Fills what lies beyond a row's own keys with NaN.
void spoil_keys(const Shape& s, Attended& c, std::int64_t row) {
  const std::int64_t past = kPasts[row], end = past + c.tokens[static_cast<std::size_t>(row)];
  for (std::int64_t head = 0; head < s.kv_heads; ++head) {
    for (std::int64_t key = end; key < kBlocks * kBlockTokens; ++key) {
      for (std::vector<float>* cache : {&c.keys, &c.values}) {
        std::fill_n(cache->begin() + static_cast<std::ptrdiff_t>(place_of(s, row, head, key)), s.head_dim, NAN);
      }
    }
  }
}

// Takes away the blocks that a row's tokens see no more.
void spoil_blocks(const Shape& s, Attended& c, std::int64_t row) {
  const std::int64_t past = kPasts[row];
  for (std::int64_t block = 0; (block + 1) * kBlockTokens <= first_seen(s, past + 1); ++block) {
    const auto at = static_cast<std::size_t>(row * kBlocks + block);
    c.key_blocks[at] = c.value_blocks[at] = nullptr;
  }
}

TEST_CASE("a row's attention depends neither on the other rows nor on keys that it does not see",
          "[activations][levels]") {
  for (const Shape& shape : kShapes) {
    for (const Tokens& tokens : kTokenCounts) {
      for (const Bound& bound : kBounds) {
        const Attended c = make_attended(shape, tokens, bound.dtype);
        Attended spoilt = c;
        for (std::int64_t row = 0; row < kRows; ++row) spoil_keys(shape, spoilt, row);
        keep(shape, spoilt);
        for (std::int64_t row = 0; row < kRows; ++row) spoil_blocks(shape, spoilt, row);
        for (const Table* table : tables()) {
          const std::vector<float> together = attended(*table, shape, c);
          const std::vector<float> alone = attended(*table, shape, c, 1);
          CHECK(std::equal(alone.begin(), alone.end(), together.begin()));
          CHECK(is_same(attended(*table, shape, spoilt), together));
        }
      }
    }
  }
}

// Values of very different sizes, so that an order of sums shows.
void spread_values(const Shape& s, Attended& c) {
  for (std::size_t i = 0; i < c.values.size(); ++i)
    c.values[i] = std::ldexp(c.values[i], static_cast<int>(i * 7919 % 21) - 10);
  keep(s, c);
}

TEST_CASE("tokens that count as many have the same attention, to the bit, however passes are divided",
          "[activations][levels]") {
  const RowsAlike alike(RowsKind::kMany);
  const std::int64_t cut = GENERATE(1, 2, 19, 40);
  for (const Shape& shape : {Shape{16, 8, 128, 0, 33}, Shape{4, 2, 64, 0, 0}, Shape{4, 1, 32, 0, 7, true}}) {
    for (const Bound& bound : kBounds) {
      Attended c = make_attended(shape, {41, 37, 40, 41}, bound.dtype);
      spread_values(shape, c);
      for (const Table* table : tables()) {
        CAPTURE(cut, table->name, shape.heads, shape.head_dim, shape.window);
        CHECK(is_same(attended(*table, shape, c, kRows, cut), attended(*table, shape, c)));
      }
    }
  }
}

TEST_CASE("a value of many in codes that is no number shows in tokens that see it, and in no other",
          "[activations][levels]") {
  const Shape shape{2, 1, 64, 0, 0};
  const Attended c = make_attended(shape, {41, 41, 41, 41}, Dtype::kBfloat16);
  Attended spoilt = c;
  spoilt.values[place_of(shape, 0, 0, kPasts[0] + 11) + 5] = NAN;
  keep(shape, spoilt);
  const auto before = 11 * shape.heads * shape.head_dim;
  for (const Table* table : tables()) {
    if (!table->wide_attention) continue;
    CAPTURE(table->name);
    const std::vector<float> wanted = attended(*table, shape, c), found = attended(*table, shape, spoilt);
    CHECK(std::equal(wanted.begin(), wanted.begin() + before, found.begin()));
    CHECK(std::isnan(found[static_cast<std::size_t>(before) + 5]));
    CHECK(std::isnan(found[static_cast<std::size_t>(40 * shape.heads * shape.head_dim) + 5]));
  }
}

// Sums of integers are largest where queries and keys lie in one line, and codes smallest beside an outlier.
TEST_CASE("long heads in one line, and with an outlier, have the attention of their definition",
          "[activations][levels]") {
  const std::int64_t head_dim = GENERATE(64, 512, 1024);
  const Shape shape{2, 1, head_dim, 0, 0};
  for (const float outlier : {1.0f, 24.0f}) {
    Attended c = make_attended(shape, {41, 2, 41, 41}, Dtype::kBfloat16);
    const auto size = static_cast<std::size_t>(head_dim);
    const auto factor = [&](std::size_t i) { return i % size == 3 ? outlier : 1.0f; };
    for (std::size_t i = 0; i < c.queries.size(); ++i) c.queries[i] = 0.5f * factor(i);
    for (std::size_t i = 0; i < c.keys.size(); ++i) c.keys[i] = (i / size % 3 == 0 ? 0.5f : -0.5f) * factor(i);
    keep(shape, c);
    const std::vector<double> wanted = attend_in_double(shape, c);
    for (const Table* table : tables()) {
      CAPTURE(table->name, head_dim, outlier);
      CHECK(largest_difference(attended(*table, shape, c), wanted) < 0.01);
    }
  }
}

}  // namespace
}  // namespace halfbyte::quant
