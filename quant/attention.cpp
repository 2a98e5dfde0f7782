// Attention of one token a row over the keys and values so far, in blocks of keys whose results are merged in order.
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
// Keys times head_dim times query heads below which other threads are not woken.
constexpr std::int64_t kParallelProducts = 64 << 10;

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

float* at_least(std::vector<float>& buffer, std::size_t count) {
  if (buffer.size() < count) buffer.resize(count);
  return buffer.data();
}

// One thread's tile, the queries' weights, and the factors of what was added up before.
struct Buffers {
  std::vector<float> queries, tile, weights, factors;
};

Buffers& buffers() {
  thread_local Buffers mine;
  return mine;
}

struct Range {
  std::int64_t begin, end;
};

class Attention {
 public:
  Attention(const kernels::Table& table, const AttendOne& a)
      : table_(table),
        kernels_(kernels::attention(table)),
        a_(a),
        share_(a.heads / a.kv_heads),
        blocks_((*std::max_element(a.past, a.past + a.rows) + kBlockKeys) / kBlockKeys) {
    thread_local std::vector<float> sums;
    thread_local std::vector<Softmax> states;
    const std::size_t parts = to_size(a.rows * a.heads * blocks_);
    sums_ = at_least(sums, parts * to_size(a.head_dim));
    if (states.size() < parts) states.resize(parts);
    states_ = states.data();
  }

  std::int64_t units() const { return a_.rows * a_.kv_heads * blocks_; }
  std::int64_t groups() const { return a_.rows * a_.kv_heads; }

  // One block of keys of one key head.
  void run(std::int64_t unit) const {
    const std::int64_t group = unit / blocks_, block = unit % blocks_, row = group / a_.kv_heads;
    const Range seen = seen_by(row);
    const Range range{std::max(seen.begin, block * kBlockKeys), std::min(seen.end, (block + 1) * kBlockKeys)};
    const std::size_t share = to_size(share_), size = to_size(a_.head_dim);
    Softmax* states = states_ + unit * share_;
    float* sums = sums_ + unit * share_ * a_.head_dim;
    std::fill_n(states, share, Softmax{-__builtin_inff(), 0});
    std::fill_n(sums, share * size, 0.0f);
    if (range.begin >= range.end) return;
    Buffers& mine = buffers();
    const kernels::Float from = kernels::to_float(a_.query_dtype);
    float* queries = at_least(mine.queries, share * size);
    const auto first = to_size(group * share_ * a_.head_dim);
    table_.load(from, reinterpret_cast<const Byte*>(a_.queries) + first * kFloatBytes[from], share * size, queries);
    for (std::int64_t key = range.begin; key < range.end; key += static_cast<std::int64_t>(kKeyTile)) {
      add_tile(group, {key, std::min(key + static_cast<std::int64_t>(kKeyTile), range.end)}, queries, states, sums);
    }
  }

  // Brings the blocks of one key head together and writes its queries' results.
  void merge(std::int64_t group) const {
    const std::size_t size = to_size(a_.head_dim);
    float* out = at_least(buffers().tile, size);
    for (std::int64_t query = 0; query < share_; ++query) {
      const auto part = [&](std::int64_t block) { return (group * blocks_ + block) * share_ + query; };
      float largest = -__builtin_inff(), sum = 0;
      for (std::int64_t block = 0; block < blocks_; ++block) largest = std::max(largest, states_[part(block)].largest);
      std::fill_n(out, size, 0.0f);
      for (std::int64_t block = 0; block < blocks_; ++block) {
        const Softmax& state = states_[part(block)];
        if (state.sum == 0.0f) continue;  // no key of this block is seen
        const float factor = blocks_ == 1 ? 1.0f : __builtin_expf(state.largest - largest);
        const float* from = sums_ + part(block) * a_.head_dim;
        sum += state.sum * factor;
        for (std::size_t i = 0; i < size; ++i) out[i] += from[i] * factor;
      }
      for (std::size_t i = 0; i < size; ++i) out[i] /= sum;
      const kernels::Float to = kernels::to_float(a_.output_dtype);
      const auto at = to_size((group * share_ + query) * a_.head_dim);
      table_.store(to, out, size, reinterpret_cast<Byte*>(a_.output) + at * kFloatBytes[to]);
    }
  }

 private:
  Range seen_by(std::int64_t row) const {
    const std::int64_t end = a_.past[row] + 1;
    return {a_.window > 0 ? std::max<std::int64_t>(0, end - a_.window) : 0, end};
  }

  const float* load(const std::byte* cache, Dtype dtype, std::int64_t group, Range keys, float* tile) const {
    const kernels::Float from = kernels::to_float(dtype);
    const auto first = to_size((group * a_.capacity + keys.begin) * a_.head_dim);
    const auto count = to_size((keys.end - keys.begin) * a_.head_dim);
    table_.load(from, reinterpret_cast<const Byte*>(cache) + first * kFloatBytes[from], count, tile);
    return tile;
  }

  void add_tile(std::int64_t group, Range keys, const float* queries, Softmax* states, float* sums) const {
    Buffers& mine = buffers();
    const std::size_t share = to_size(share_), size = to_size(a_.head_dim), count = to_size(keys.end - keys.begin);
    float* tile = at_least(mine.tile, kKeyTile * size);
    float* weights = at_least(mine.weights, share * kKeyTile);
    float* factors = at_least(mine.factors, share);
    load(a_.keys, a_.key_dtype, group, keys, tile);
    kernels_.scores(queries, share, tile, count, size, a_.scale, a_.softcap, weights);
    for (std::size_t q = 0; q < share; ++q) factors[q] = kernels_.soften(weights + q * kKeyTile, count, states + q);
    load(a_.values, a_.value_dtype, group, keys, tile);
    kernels_.weigh(weights, factors, share, tile, count, size, sums);
  }

  const kernels::Table& table_;
  const kernels::AttentionTable& kernels_;
  const AttendOne& a_;
  std::int64_t share_;   // query heads of a key head
  std::int64_t blocks_;  // of the longest row
  float* sums_;          // (groups, blocks, share, head_dim)
  Softmax* states_;      // (groups, blocks, share)
};

}  // namespace

void attend_one(const kernels::Table& table, const AttendOne& a) {
  if (a.rows == 0) return;
  const Attention attention(table, a);
  const std::int64_t keys = *std::max_element(a.past, a.past + a.rows) + 1;
#pragma omp parallel if (a.rows * keys * a.heads * a.head_dim > kParallelProducts)
  {
#pragma omp for
    for (std::int64_t unit = 0; unit < attention.units(); ++unit) attention.run(unit);
#pragma omp for
    for (std::int64_t group = 0; group < attention.groups(); ++group) attention.merge(group);
  }
}

void attend_one(const AttendOne& arguments) { attend_one(kernels::kernels(), arguments); }

}  // namespace halfbyte::quant
