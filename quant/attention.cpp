// Causal attention over the keys and values so far. Of one token a row: in blocks of keys, whose results are merged in
// order, so that a long context occupies all threads. Of many: in blocks of tokens, each over all keys that it sees.
#include <algorithm>
#include <vector>

#include "quant/activations.h"
#include "quant/kernels/activation_kernels.h"
#include "quant/kernels/dtypes.h"
#include "quant/with_activations.h"

namespace halfbyte::quant {
namespace {

using kernels::Byte;
using kernels::kFloatBytes;
using kernels::kKeyTile;
using kernels::Softmax;

// Keys that one thread takes at a time. Fixed, so that results do not depend on how many threads there are.
constexpr std::int64_t kBlockKeys = 512;
// Queries (tokens by the heads that share keys) that go through a tile of keys together: their sums stay in the
// second-level cache.
constexpr std::int64_t kBlockQueries = 128;
// Keys times head_dim times queries below which other threads are not woken.
constexpr std::int64_t kParallelProducts = 64 << 10;
constexpr std::int64_t kLineBytes = 64;  // of a cache
constexpr auto kTile = static_cast<std::int64_t>(kKeyTile);

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

template <class T>
T* at_least(std::vector<T>& buffer, std::int64_t count) {
  if (buffer.size() < to_size(count)) buffer.resize(to_size(count));
  return buffer.data();
}

// One thread's tile, the queries' weights, and the factors of what was added up before.
struct Buffers {
  std::vector<float> queries, tile, columns, weights, factors, sums;
  std::vector<Softmax> states;
};

Buffers& buffers() {
  thread_local Buffers mine;
  return mine;
}

struct Range {
  std::int64_t begin, end;
};

// What both ways of dividing the work do alike. A group is one key head of one row.
class Attention {
 public:
  Attention(const kernels::Table& table, const Attend& a)
      : table_(table), kernels_(*table.attention), a_(a), share_(a.heads / a.kv_heads) {}

 protected:
  // Keys that a token sees.
  Range seen_by(std::int64_t row, std::int64_t token) const {
    const std::int64_t end = a_.past[row] + token + 1;
    if (a_.window == 0) return {0, end};
    return {a_.is_chunked ? (end - 1) / a_.window * a_.window : std::max<std::int64_t>(0, end - a_.window), end};
  }

  // What a query's sums are divided by. `query`: of those that share the group's keys.
  float divisor(std::int64_t group, std::int64_t query, const Softmax& state) const {
    if (!a_.sinks) return state.sum;
    return state.sum + __builtin_expf(a_.sinks[group % a_.kv_heads * share_ + query] - state.largest);
  }

  // The first of the group's heads, of one token. Units: values of queries and of the output.
  std::int64_t place_of(std::int64_t group, std::int64_t token) const {
    const std::int64_t row = group / a_.kv_heads, head = group % a_.kv_heads * share_;
    return ((row * a_.tokens + token) * a_.heads + head) * a_.head_dim;
  }

  void load_queries(std::int64_t group, std::int64_t token, float* out) const {
    const kernels::Float from = kernels::to_float(a_.query_dtype);
    const std::size_t at = to_size(place_of(group, token)) * kFloatBytes[from];
    table_.load(from, reinterpret_cast<const Byte*>(a_.queries) + at, to_size(share_ * a_.head_dim), out);
  }

  void load(const std::byte* cache, Dtype dtype, std::int64_t group, Range keys, float* tile) const {
    const kernels::Float from = kernels::to_float(dtype);
    const std::size_t at = to_size((group * a_.capacity + keys.begin) * a_.head_dim) * kFloatBytes[from];
    const auto count = to_size((keys.end - keys.begin) * a_.head_dim);
    table_.load(from, reinterpret_cast<const Byte*>(cache) + at, count, tile);
  }

  // Memory is asked for keys or values that are needed next, while others are computed with.
  void expect(const std::byte* cache, Dtype dtype, std::int64_t group, Range keys) const {
    const std::int64_t row_bytes = a_.head_dim * size_bytes(dtype), count = keys.end - keys.begin;
    const std::byte* first = cache + (group * a_.capacity + keys.begin) * row_bytes;
    for (std::int64_t at = 0; at < count * row_bytes; at += kLineBytes) __builtin_prefetch(first + at, 0, 2);
  }

  // Shape: sums (share, head_dim), divided here.
  void write(std::int64_t group, std::int64_t token, std::int64_t query, float* sums, float divisor) const {
    for (std::int64_t i = 0; i < a_.head_dim; ++i) sums[i] /= divisor;
    const kernels::Float to = kernels::to_float(a_.output_dtype);
    const std::size_t at = to_size(place_of(group, token) + query * a_.head_dim) * kFloatBytes[to];
    table_.store(to, sums, to_size(a_.head_dim), reinterpret_cast<Byte*>(a_.output) + at);
  }

  const kernels::Table& table_;
  const kernels::AttentionTable& kernels_;
  const Attend& a_;
  std::int64_t share_;  // query heads of a key head
};

class OneToken : public Attention {
 public:
  OneToken(const kernels::Table& table, const Attend& a)
      : Attention(table, a), blocks_((*std::max_element(a.past, a.past + a.rows) + kBlockKeys) / kBlockKeys) {
    sums_ = at_least(buffers().sums, a.rows * a.heads * blocks_ * a.head_dim);
    states_ = at_least(buffers().states, a.rows * a.heads * blocks_);
  }

  std::int64_t units() const { return a_.rows * a_.kv_heads * blocks_; }
  std::int64_t groups() const { return a_.rows * a_.kv_heads; }

  // One block of keys of one group.
  void run(std::int64_t unit) const {
    const std::int64_t group = unit / blocks_, block = unit % blocks_;
    const Range seen = seen_by(group / a_.kv_heads, 0);
    const Range range{std::max(seen.begin, block * kBlockKeys), std::min(seen.end, (block + 1) * kBlockKeys)};
    Softmax* states = states_ + unit * share_;
    float* sums = sums_ + unit * share_ * a_.head_dim;
    std::fill_n(states, share_, Softmax{-__builtin_inff(), 0});
    std::fill_n(sums, share_ * a_.head_dim, 0.0f);
    if (range.begin >= range.end) return;
    float* queries = at_least(buffers().queries, share_ * a_.head_dim);
    load_queries(group, 0, queries);
    for (std::int64_t key = range.begin; key < range.end; key += kTile) {
      add_tile(group, {key, std::min(key + kTile, range.end)}, range.end, queries, states, sums);
    }
  }

  // Brings the blocks of a group together.
  void merge(std::int64_t group) const {
    for (std::int64_t query = 0; query < share_; ++query) {
      float* out = at_least(buffers().tile, a_.head_dim);
      const Softmax all = add_blocks(group, query, out);
      write(group, 0, query, out, divisor(group, query, all));
    }
  }

 private:
  Softmax add_blocks(std::int64_t group, std::int64_t query, float* out) const {
    const auto part = [&](std::int64_t block) { return (group * blocks_ + block) * share_ + query; };
    float largest = -__builtin_inff(), sum = 0;
    for (std::int64_t block = 0; block < blocks_; ++block) largest = std::max(largest, states_[part(block)].largest);
    std::fill_n(out, a_.head_dim, 0.0f);
    for (std::int64_t block = 0; block < blocks_; ++block) {
      const Softmax& state = states_[part(block)];
      if (state.sum == 0.0f) continue;  // no key of this block is seen
      const float factor = blocks_ == 1 ? 1.0f : __builtin_expf(state.largest - largest);
      const float* from = sums_ + part(block) * a_.head_dim;
      sum += state.sum * factor;
      for (std::int64_t i = 0; i < a_.head_dim; ++i) out[i] += from[i] * factor;
    }
    return {largest, sum};
  }

  void add_tile(std::int64_t group, Range keys, std::int64_t end, const float* queries, Softmax* states,
                float* sums) const {
    const std::size_t share = to_size(share_), size = to_size(a_.head_dim), count = to_size(keys.end - keys.begin);
    float* tile = at_least(buffers().tile, kTile * a_.head_dim);
    float* weights = at_least(buffers().weights, share_ * kTile);
    float* factors = at_least(buffers().factors, share_);
    expect(a_.values, a_.value_dtype, group, keys);
    load(a_.keys, a_.key_dtype, group, keys, tile);
    kernels_.scores(queries, share, tile, count, size, a_.scale, a_.softcap, weights);
    for (std::size_t q = 0; q < share; ++q) factors[q] = kernels_.soften(weights + q * kKeyTile, count, states + q);
    expect(a_.keys, a_.key_dtype, group, {keys.end, std::min(keys.end + kTile, end)});
    load(a_.values, a_.value_dtype, group, keys, tile);
    kernels_.weigh(weights, factors, share, tile, count, size, sums);
  }

  std::int64_t blocks_;  // of the longest row
  float* sums_;          // (groups, blocks, share, head_dim)
  Softmax* states_;      // (groups, blocks, share)
};

class ManyTokens : public Attention {
 public:
  ManyTokens(const kernels::Table& table, const Attend& a)
      : Attention(table, a),
        block_(std::clamp<std::int64_t>(kBlockQueries / share_, 1, a.tokens)),
        blocks_((a.tokens + block_ - 1) / block_) {}

  std::int64_t units() const { return a_.rows * a_.kv_heads * blocks_; }

  // One block of tokens of one group; the last blocks, which see most, come first.
  void run(std::int64_t unit) const {
    const std::int64_t groups = a_.rows * a_.kv_heads, group = unit % groups;
    const std::int64_t first = (blocks_ - 1 - unit / groups) * block_;
    const Range tokens{first, std::min(first + block_, a_.tokens)};
    const std::int64_t n = (tokens.end - tokens.begin) * share_, row = group / a_.kv_heads;
    float* queries = at_least(buffers().queries, n * a_.head_dim);
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token) {
      load_queries(group, token, queries + (token - first) * share_ * a_.head_dim);
    }
    Softmax* states = at_least(buffers().states, n);
    float* sums = at_least(buffers().sums, n * a_.head_dim);
    std::fill_n(states, n, Softmax{-__builtin_inff(), 0});
    std::fill_n(sums, n * a_.head_dim, 0.0f);
    const std::int64_t end = seen_by(row, tokens.end - 1).end;
    for (std::int64_t key = seen_by(row, first).begin; key < end; key += kTile) {
      add_tile(group, tokens, {key, std::min(key + kTile, end)}, states);
    }
    for (std::int64_t q = 0; q < n; ++q) {
      write(group, first + q / share_, q % share_, sums + q * a_.head_dim, divisor(group, q % share_, states[q]));
    }
  }

 private:
  void add_tile(std::int64_t group, Range tokens, Range keys, Softmax* states) const {
    Buffers& mine = buffers();
    const std::int64_t n = (tokens.end - tokens.begin) * share_;
    const std::size_t size = to_size(a_.head_dim), count = to_size(keys.end - keys.begin);
    float* tile = at_least(mine.tile, kTile * a_.head_dim);
    float* columns = at_least(mine.columns, kTile * a_.head_dim);
    float* weights = at_least(mine.weights, n * kTile);
    float* factors = at_least(mine.factors, n);
    load(a_.keys, a_.key_dtype, group, keys, tile);
    kernels_.transpose(tile, count, size, columns);
    kernels_.scores_of_many(mine.queries.data(), to_size(n), columns, size, a_.scale, a_.softcap, weights);
    for (std::int64_t q = 0; q < n; ++q) {
      const Range seen = seen_by(group / a_.kv_heads, tokens.begin + q / share_);
      factors[q] = soften(weights + q * kTile, keys, seen, states[q]);
    }
    load(a_.values, a_.value_dtype, group, keys, tile);
    kernels_.weigh(weights, factors, to_size(n), tile, count, size, mine.sums.data());
  }

  // Of the keys of a tile, a query's own; the others weigh nothing.
  float soften(float* weights, Range keys, Range seen, Softmax& state) const {
    const std::int64_t begin = std::clamp(seen.begin, keys.begin, keys.end) - keys.begin;
    const std::int64_t end = std::clamp(seen.end, keys.begin, keys.end) - keys.begin;
    std::fill(weights, weights + begin, 0.0f);
    std::fill(weights + std::max(begin, end), weights + kTile, 0.0f);
    if (end <= begin) return 1.0f;
    return kernels_.soften(weights + begin, to_size(end - begin), &state);
  }

  std::int64_t block_;   // tokens
  std::int64_t blocks_;  // of a row
};

}  // namespace

void attend(const kernels::Table& table, const Attend& a) {
  if (a.rows == 0 || a.tokens == 0) return;
  const std::int64_t keys = *std::max_element(a.past, a.past + a.rows) + a.tokens;
  const bool is_parallel = a.rows * a.tokens * keys * a.heads * a.head_dim > kParallelProducts;
  if (a.tokens > 1) {
    const ManyTokens many(table, a);
#pragma omp parallel for schedule(dynamic) if (is_parallel)
    for (std::int64_t unit = 0; unit < many.units(); ++unit) many.run(unit);
    return;
  }
  const OneToken one(table, a);
#pragma omp parallel if (is_parallel)
  {
#pragma omp for
    for (std::int64_t unit = 0; unit < one.units(); ++unit) one.run(unit);
#pragma omp for
    for (std::int64_t group = 0; group < one.groups(); ++group) one.merge(group);
  }
}

void attend(const Attend& arguments) { attend(kernels::kernels(), arguments); }

}  // namespace halfbyte::quant
