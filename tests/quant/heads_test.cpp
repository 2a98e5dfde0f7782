// Queries, keys and values on their way to attention: normalised, turned and stored. The reference against the
// definitions, every level against the reference.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "quant/activations.h"
#include "quant/kernels/activation_kernels.h"
#include "quant/with_activations.h"
#include "tests/catch.h"
#include "tests/quant/levels.h"
#include "tests/quant/random_values.h"

namespace halfbyte::quant {
namespace {

using namespace halfbyte::quant::test;
using kernels::Table;

// Rows of different pasts, and what the pass's queries and the caches hold after it.
struct Placed {
  std::vector<float> queries, keys, values;
  bool is_finite = false;
};

// The first row's tokens go from one block to the next.
constexpr std::int64_t kTokens = 3, kPast = kBlockTokens - 2, kBlocks = 2, kCapacity = kBlocks * kBlockTokens;
constexpr std::int64_t kHeads = 4, kKeyHeads = 2, kDim = 24, kPairs = 8;
constexpr std::int64_t kAll = (kHeads + 2 * kKeyHeads) * kDim;

// Two rows' heads, a token's one after another.
PlaceHeads heads_in(const std::vector<float>& products) {
  PlaceHeads a{};
  a.heads = kHeads;
  a.kv_heads = kKeyHeads;
  a.head_dim = kDim;
  a.query = {products.data(), kAll, kDim};
  a.key = {products.data() + kHeads * kDim, kAll, kDim};
  a.value = {products.data() + (kHeads + kKeyHeads) * kDim, kAll, kDim};
  return a;
}

// Of all heads; of one, its begin.
std::vector<float> norm_weight() { return normal(kHeads * kDim, 6); }

std::vector<std::byte*> blocks_of(std::vector<float>& cache) {
  std::vector<std::byte*> out;
  for (std::size_t at = 0; at < cache.size(); at += kKeyHeads * kBlockTokens * kDim)
    out.push_back(reinterpret_cast<std::byte*>(cache.data() + at));
  return out;
}

// Of one key head of one row.
const float* at_position(const std::vector<float>& cache, std::int64_t row, std::int64_t head, std::int64_t position) {
  const std::int64_t block = row * kBlocks + position / kBlockTokens;
  return cache.data() + ((block * kKeyHeads + head) * kBlockTokens + position % kBlockTokens) * kDim;
}

struct Options {
  float growth = 0;
  bool has_value_norm = false;
  bool has_own_keys = true;
};

Placed place(const Table& table, bool is_interleaved, std::optional<HeadNorm> norm, float spread, Dtype dtype,
             const Options& options = {}) {
  const std::vector<float> products = normal(2 * kTokens * kAll, 5, spread), weight = norm_weight();
  std::vector<float> cosine(kCapacity * kPairs), sine(cosine.size());
  for (std::size_t i = 0; i < cosine.size(); ++i) {
    cosine[i] = std::cos(static_cast<float>(i));
    sine[i] = std::sin(static_cast<float>(i));
  }
  const float* cosines[] = {cosine.data() + kPast * kPairs, cosine.data()};
  const float* sines[] = {sine.data() + kPast * kPairs, sine.data()};
  Placed out{std::vector<float>(2 * kTokens * kHeads * kDim), std::vector<float>(2 * kKeyHeads * kCapacity * kDim, -7),
             std::vector<float>(2 * kKeyHeads * kCapacity * kDim, -7)};
  std::vector<std::uint16_t> halves(out.queries.size());
  PlaceHeads a = heads_in(products);
  if (norm) {
    a.query_norm = a.key_norm = {bytes(weight), Dtype::kFloat32, 0, 1e-6f};
    a.norm = *norm;
  }
  if (options.has_value_norm) a.value_norm = {bytes(weight), Dtype::kFloat32, 0, 1e-6f};
  if (!options.has_own_keys) a.kv_heads = 0;
  a.growth = options.growth;
  a.growth_length = 3;
  a.growth_shift = 1;
  a.pairs = kPairs;
  a.is_interleaved = is_interleaved;
  a.cosines = cosines;
  a.sines = sines;
  a.queries = dtype == Dtype::kFloat32 ? bytes(out.queries) : bytes(halves);
  a.query_dtype = dtype;
  const auto keys = blocks_of(out.keys), values = blocks_of(out.values);
  const SequenceBlocks rows[] = {{0, kTokens, kPast, keys.data(), values.data()},
                                 {kTokens, kTokens, 0, keys.data() + kBlocks, values.data() + kBlocks}};
  a.sequences = rows;
  a.count = 2;
  a.key_dtype = a.value_dtype = Dtype::kFloat32;
  out.is_finite = place_heads(table, a);
  return out;
}

// `stored`: x turned by the angles of position `at`, what is not turned as it was.
void check_turned(const float* stored, const float* x, std::int64_t at, bool is_interleaved) {
  for (std::int64_t pair = 0; pair < kPairs; ++pair) {
    const std::int64_t first = is_interleaved ? 2 * pair : pair, second = is_interleaved ? first + 1 : pair + kPairs;
    const auto turn = static_cast<float>(at * kPairs + pair);
    CHECK(stored[first] == Approx(x[first] * std::cos(turn) - x[second] * std::sin(turn)).margin(1e-6));
    CHECK(stored[second] == Approx(x[second] * std::cos(turn) + x[first] * std::sin(turn)).margin(1e-6));
  }
  CHECK(std::equal(x + 2 * kPairs, x + kDim, stored + 2 * kPairs));
}

// The keys and values of one head of one row, over the whole cache.
void check_stored(const Placed& placed, std::int64_t row, std::int64_t head, bool is_interleaved) {
  const std::vector<float> products = normal(2 * kTokens * (kHeads + 2 * kKeyHeads) * kDim, 5);
  for (std::int64_t at = 0; at < kCapacity; ++at) {
    const std::int64_t token = at - (row == 0 ? kPast : 0);
    const float* stored = at_position(placed.keys, row, head, at);
    if (token < 0 || token >= kTokens) {
      CHECK(stored[0] == -7.0f);  // left alone
      continue;
    }
    const float* x =
        products.data() + (row * kTokens + token) * (kHeads + 2 * kKeyHeads) * kDim + (kHeads + head) * kDim;
    check_turned(stored, x, at, is_interleaved);
    const float* value = at_position(placed.values, row, head, at);
    CHECK(std::equal(value, value + kDim, x + kKeyHeads * kDim));
  }
}

constexpr std::optional<HeadNorm> kNorms[] = {std::nullopt, HeadNorm::kEachHead, HeadNorm::kEachTurnedHead,
                                              HeadNorm::kAllHeads};

using Head = std::vector<double>;

double mean_square(std::span<const float> x) {
  return std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(x.size());
}

Head weighted(const Head& x, double mean, std::span<const float> weight) {
  Head out;
  for (std::size_t i = 0; i < x.size(); ++i) out.push_back(x[i] / std::sqrt(mean + 1e-6) * weight[i]);
  return out;
}

Head turned(Head x, std::int64_t at) {
  for (std::int64_t pair = 0; pair < kPairs; ++pair) {
    const auto first = static_cast<std::size_t>(pair), second = static_cast<std::size_t>(pair + kPairs);
    const double angle = static_cast<double>(at * kPairs + pair), before = x[first];
    x[first] = before * std::cos(angle) - x[second] * std::sin(angle);
    x[second] = x[second] * std::cos(angle) + before * std::sin(angle);
  }
  return x;
}

TEST_CASE("a norm of queries is of each head, of each that is turned, or of all together", "[activations]") {
  const std::vector<float> products = normal(2 * kTokens * kAll, 5), weights = norm_weight();
  const auto wanted = [&](HeadNorm norm, std::span<const float> token, std::size_t head, std::int64_t at) {
    const auto own = token.subspan(head * kDim, kDim);
    const Head x(own.begin(), own.end());
    const std::span<const float> weight(weights);
    if (norm == HeadNorm::kAllHeads)
      return turned(weighted(x, mean_square(token), weight.subspan(head * kDim, kDim)), at);
    if (norm == HeadNorm::kEachHead) return turned(weighted(x, mean_square(own), weight.first(kDim)), at);
    const Head last = turned(x, at);
    const std::vector<float> floats(last.begin(), last.end());
    return weighted(last, mean_square(floats), weight.first(kDim));
  };
  for (const HeadNorm norm : {HeadNorm::kEachHead, HeadNorm::kEachTurnedHead, HeadNorm::kAllHeads}) {
    const Placed ref = place(kernels::kRef, false, norm, 1, Dtype::kFloat32);
    for (std::size_t i = 0; i < kTokens * kHeads; ++i) {  // of the row that has no past
      const std::size_t token = kTokens + i / kHeads, head = i % kHeads;
      const auto of_token = std::span(products).subspan(token * kAll, kHeads * kDim);
      const Head out = wanted(norm, of_token, head, static_cast<std::int64_t>(i / kHeads));
      for (std::size_t value = 0; value < kDim; ++value)
        CHECK(ref.queries[(token * kHeads + head) * kDim + value] == Approx(out[value]).margin(1e-5));
    }
  }
}

TEST_CASE("queries grow with their position, keys do not", "[activations][levels]") {
  for (const Table* table : tables()) {
    const Placed still = place(*table, false, std::nullopt, 1, Dtype::kFloat32);
    const Placed grown = place(*table, false, std::nullopt, 1, Dtype::kFloat32, {.growth = 0.5f});
    CHECK(is_same(grown.keys, still.keys));
    for (std::size_t token = 0; token < 2 * kTokens; ++token) {
      const std::size_t position = token < kTokens ? kPast + token : token - kTokens;
      const double factor = 1 + 0.5 * std::log(1 + std::floor((static_cast<double>(position) + 1) / 3));
      for (std::size_t value = token * kHeads * kDim; value < (token + 1) * kHeads * kDim; ++value)
        CHECK(grown.queries[value] == Approx(still.queries[value] * factor).margin(1e-7));
    }
  }
}

TEST_CASE("values may have a norm of their own, and keys and values may be another layer's", "[activations][levels]") {
  const std::vector<float> weights = norm_weight();
  for (const Table* table : tables()) {
    const Placed plain = place(*table, false, std::nullopt, 1, Dtype::kFloat32);
    const Placed normal = place(*table, false, std::nullopt, 1, Dtype::kFloat32, {.has_value_norm = true});
    CHECK(is_same(normal.keys, plain.keys));
    CHECK(is_same(normal.queries, plain.queries));
    for (std::int64_t token = 0; token < kTokens; ++token) {
      const float* x = at_position(plain.values, 0, 1, kPast + token);
      const float* out = at_position(normal.values, 0, 1, kPast + token);
      const Head wanted = weighted(Head(x, x + kDim), mean_square({x, kDim}), std::span(weights).first(kDim));
      for (std::size_t i = 0; i < kDim; ++i) CHECK(out[i] == Approx(wanted[i]).margin(1e-5));
    }
    const Placed none = place(*table, false, std::nullopt, 1, Dtype::kFloat32, {.has_own_keys = false});
    CHECK(is_same(none.queries, plain.queries));
    CHECK(std::ranges::count(none.keys, -7.0f) == static_cast<std::ptrdiff_t>(none.keys.size()));
    CHECK(is_same(none.values, none.keys));
  }
}

TEST_CASE("columns of some rows come in another order, in 16 bits and in 32", "[activations]") {
  const std::vector<std::int64_t> order = {2, 0, 4, 1, 3};
  const std::vector<float> x = normal(15, 8);
  std::vector<float> out(15);
  reorder_columns({3, 5, order.data(), bytes(x), bytes(out), Dtype::kFloat32});
  std::vector<std::uint16_t> halves(15), ordered(15);
  std::iota(halves.begin(), halves.end(), std::uint16_t{100});
  reorder_columns({3, 5, order.data(), bytes(halves), bytes(ordered), Dtype::kBfloat16});
  for (std::size_t i = 0; i < 15; ++i) {
    const std::size_t from = i / 5 * 5 + static_cast<std::size_t>(order[i % 5]);
    CHECK(out[i] == x[from]);
    CHECK(ordered[i] == halves[from]);
  }
}

TEST_CASE("heads are normalised, turned and stored where their row stands", "[activations][levels]") {
  for (const bool is_interleaved : {false, true}) {
    const Placed ref = place(kernels::kRef, is_interleaved, std::nullopt, 1, Dtype::kFloat32);
    CHECK(ref.is_finite);
    for (std::int64_t row = 0; row < 2; ++row) {
      for (std::int64_t head = 0; head < kKeyHeads; ++head) check_stored(ref, row, head, is_interleaved);
    }
    for (const Table* table : tables()) {
      for (const std::optional<HeadNorm> norm : kNorms) {
        const Placed wanted = place(kernels::kRef, is_interleaved, norm, 1, Dtype::kFloat32);
        const Placed out = place(*table, is_interleaved, norm, 1, Dtype::kFloat32);
        CHECK(is_same(out.queries, wanted.queries));
        CHECK(is_same(out.keys, wanted.keys));
        CHECK(is_same(out.values, wanted.values));
      }
      CHECK_FALSE(place(*table, is_interleaved, std::nullopt, 1e5f, Dtype::kFloat16).is_finite);
      CHECK(place(*table, is_interleaved, std::nullopt, 1e5f, Dtype::kBfloat16).is_finite);
    }
  }
}

}  // namespace
}  // namespace halfbyte::quant
