// Causal attention over the keys and values so far. Of few tokens a sequence: some keys at a time, whose results are
// merged in order, so that a long context occupies all threads. Of many: some tokens at a time, each over all keys that
// it sees.
#include <algorithm>
#include <atomic>
#include <span>
#include <vector>

#include "quant/activations.h"
#include "quant/few_queries.h"
#include "quant/grown.h"
#include "quant/kernels/activation_kernels.h"
#include "quant/kernels/dtypes.h"
#include "quant/key_value_tiles.h"
#include "quant/many_queries.h"
#include "quant/rows_alike.h"
#include "quant/thread_pool.h"
#include "quant/with_activations.h"

namespace halfbyte::quant {
namespace {

using kernels::Byte;
using kernels::kFloatBytes;
using kernels::kKeyTile;
using kernels::Softmax;

// More tokens of a sequence than these are worth turning keys for.
constexpr std::int64_t kFewTokens = 8;
// Keys that one thread takes at a time. Fixed, so that results do not depend on how many threads there are.
constexpr std::int64_t kBlockKeys = 512;
// Queries (tokens by the heads that share keys) that a tile of keys is turned for: their sums stay in the second-level
// cache. So many of them go through its keys together, as far as the last of these sees: with heads of 64 they stay in
// the first-level cache.
constexpr std::int64_t kBlockQueries = 128, kTogetherQueries = 24;
// Keys times head_dim times queries below which others sleep on.
constexpr std::int64_t kParallelProducts = 64 << 10;
static_assert(kKeyTile == kBlockTokens, "a tile does not cross from one block to the next");

using Range = TokenRange;

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

bool are_few(const SequenceBlocks& sequence) {
  return sequence.tokens <= kFewTokens && RowsAlike::kind() != RowsKind::kMany;
}

// A piece of the work: some keys of a sequence of few tokens, or some tokens of many, by one key head.
struct Unit {
  const SequenceBlocks* sequence;
  std::int64_t head;  // of keys
  Range range;
  std::int64_t merge = 0;  // of some keys: where it belongs,
  std::int64_t place = 0;  // and its first query among those of all units
};

// The units of one sequence by one key head.
struct Merge {
  std::int64_t begin, end;
  std::int64_t left;  // units that are not computed yet
};

// One thread's tile, the queries' weights, and the factors of what was added up before; and of the thread that calls,
// the work, and what comes of the units of few tokens.
struct Buffers {
  std::vector<float> queries, tile, weights, factors, sums, sums_of_units;
  std::vector<Softmax> states, states_of_units;
  std::vector<Unit> some_keys, some_tokens;
  std::vector<Merge> merges;
};

Buffers& buffers() {
  thread_local Buffers mine;
  return mine;
}

// What both ways of dividing the work do alike.
class Attention {
 public:
  Attention(const kernels::Table& table, const Attend& a)
      : table_(table), kernels_(*table.attention), a_(a), tiles_(table, a), share_(a.heads / a.kv_heads) {}

  // Keys that a sequence's new token sees.
  Range seen_by(const SequenceBlocks& sequence, std::int64_t token) const {
    const std::int64_t end = sequence.past + token + 1;
    if (a_.window == 0) return {0, end};
    return {a_.is_chunked ? (end - 1) / a_.window * a_.window : std::max<std::int64_t>(0, end - a_.window), end};
  }

 protected:
  // What a query's sums are divided by. `query`: of those that share the head's keys.
  float divisor(std::int64_t head, std::int64_t query, const Softmax& state) const {
    if (!a_.sinks) return state.sum;
    return state.sum + __builtin_expf(a_.sinks[head * share_ + query] - state.largest);
  }

  // The first of the heads that share keys, of one token, in queries and output.
  std::int64_t place_of(const Unit& unit, std::int64_t token) const {
    return (unit.sequence->first + token) * a_.heads + unit.head * share_;
  }

  void load_queries(const Unit& unit, std::int64_t token, float* out) const {
    const kernels::Float from = kernels::to_float(a_.query_dtype);
    const std::size_t at = to_size(place_of(unit, token) * a_.head_dim) * kFloatBytes[from];
    table_.load(from, reinterpret_cast<const Byte*>(a_.queries) + at, to_size(share_ * a_.head_dim), out);
  }

  // Of the keys of a tile, each query's own (seen(q)); the others weigh nothing. Shapes: weights (n, kKeyTile), others
  // (n).
  template <class Seen>
  void soften(float* weights, Range keys, std::int64_t n, const Seen& seen, Softmax* states, float* factors) const {
    const auto sees_all = [&](std::int64_t q) {
      const Range own = seen(q);
      return own.begin <= keys.begin && own.end >= keys.end && keys.end - keys.begin == kBlockTokens;
    };
    for (std::int64_t q = 0, end; q < n; q = end) {
      for (end = q; end < n && sees_all(end);) ++end;
      float* const own = weights + q * kBlockTokens;
      if (end > q) {
        kernels_.soften_tiles(own, to_size(end - q), states + q, factors + q);
      } else {
        factors[q] = soften_some(own, keys, seen(q), states[q]);
        ++end;
      }
    }
  }

  // Shape: sums (head_dim), divided here.
  void write(const Unit& unit, std::int64_t token, std::int64_t query, float* sums, float divisor) const {
    for (std::int64_t i = 0; i < a_.head_dim; ++i) sums[i] /= divisor;
    const kernels::Float to = kernels::to_float(a_.output_dtype);
    const std::size_t at = to_size((place_of(unit, token) + query) * a_.head_dim) * kFloatBytes[to];
    table_.store(to, sums, to_size(a_.head_dim), reinterpret_cast<Byte*>(a_.output) + at);
  }

  const kernels::Table& table_;
  const kernels::AttentionTable& kernels_;
  const Attend& a_;
  const KeyValueTiles tiles_;
  std::int64_t share_;  // query heads of a key head

 private:
  float soften_some(float* weights, Range keys, Range seen, Softmax& state) const {
    const std::int64_t begin = std::clamp(seen.begin, keys.begin, keys.end) - keys.begin;
    const std::int64_t end = std::clamp(seen.end, keys.begin, keys.end) - keys.begin;
    std::fill(weights, weights + begin, 0.0f);
    std::fill(weights + std::max(begin, end), weights + kBlockTokens, 0.0f);
    if (end <= begin) return 1.0f;
    return kernels_.soften(weights + begin, to_size(end - begin), &state);
  }
};

// Sequences of few new tokens each: a token's result is, bit for bit, what it is alone.
class FewTokens : public Attention {
 public:
  FewTokens(const kernels::Table& table, const Attend& a) : Attention(table, a), queries_(table, a) {
    buffers().some_keys.clear();
    buffers().merges.clear();
    std::int64_t queries = 0;
    for (std::int64_t i = 0; i < a.count; ++i) {
      if (are_few(a.sequences[i])) add(a.sequences[i], queries);
    }
    units_ = buffers().some_keys;
    merges_ = buffers().merges;
    sums_ = at_least(buffers().sums_of_units, queries * a.head_dim);
    states_ = at_least(buffers().states_of_units, queries);
  }

  std::int64_t units_count() const { return static_cast<std::int64_t>(units_.size()); }

  // Who computes the last unit of a head brings all of them together.
  void run(std::int64_t index) const {
    compute(units_[to_size(index)]);
    Merge& all = merges_[to_size(units_[to_size(index)].merge)];
    if (std::atomic_ref(all.left).fetch_sub(1, std::memory_order_acq_rel) == 1) merge(all);
  }

 private:
  // Queries that go through a unit's keys together.
  std::int64_t queries_of(const Unit& unit) const { return unit.sequence->tokens * share_; }

  // `queries`: of all units so far.
  void add(const SequenceBlocks& sequence, std::int64_t& queries) const {
    std::vector<Unit>& units = buffers().some_keys;
    std::vector<Merge>& merges = buffers().merges;
    const Range seen{seen_by(sequence, 0).begin, seen_by(sequence, sequence.tokens - 1).end};
    for (std::int64_t head = 0; head < a_.kv_heads; ++head) {
      const auto begin = static_cast<std::int64_t>(units.size());
      for (std::int64_t key = seen.begin, end; key < seen.end; key = end) {
        end = std::min(seen.end, (key / kBlockKeys + 1) * kBlockKeys);
        units.push_back({&sequence, head, {key, end}, static_cast<std::int64_t>(merges.size()), queries});
        queries += queries_of(units.back());
      }
      const auto units_end = static_cast<std::int64_t>(units.size());
      merges.push_back({begin, units_end, units_end - begin});
    }
  }

  void compute(const Unit& unit) const {
    const std::int64_t n = queries_of(unit);
    Softmax* states = states_ + unit.place;
    float* sums = sums_ + unit.place * a_.head_dim;
    std::fill_n(states, n, Softmax{-__builtin_inff(), 0});
    std::fill_n(sums, n * a_.head_dim, 0.0f);
    float* queries = at_least(buffers().queries, n * a_.head_dim);
    for (std::int64_t token = 0; token < unit.sequence->tokens; ++token)
      load_queries(unit, token, queries + token * share_ * a_.head_dim);
    tiles_.expect_keys(*unit.sequence, unit.head, tiles_.tile_at(unit.range.begin, unit.range.end));
    queries_.set(queries, to_size(n));
    for (std::int64_t key = unit.range.begin; key < unit.range.end;) {
      const Range tile = tiles_.tile_at(key, unit.range.end);
      add_tile(unit, tile, states, sums);
      key = tile.end;
    }
  }

  void merge(const Merge& all) const {
    const Unit& unit = units_[to_size(all.begin)];
    for (std::int64_t query = 0; query < queries_of(unit); ++query) {
      float* out = at_least(buffers().tile, a_.head_dim);
      const Softmax state = add_units(all, query, out);
      write(unit, query / share_, query % share_, out, divisor(unit.head, query % share_, state));
    }
  }

  Softmax add_units(const Merge& all, std::int64_t query, float* out) const {
    const auto units = units_.subspan(to_size(all.begin), to_size(all.end - all.begin));
    float largest = -__builtin_inff(), sum = 0;
    for (const Unit& unit : units) largest = std::max(largest, states_[unit.place + query].largest);
    std::fill_n(out, a_.head_dim, 0.0f);
    for (const Unit& unit : units) {
      const Softmax& state = states_[unit.place + query];
      const float factor = units.size() == 1 ? 1.0f : __builtin_expf(state.largest - largest);
      const float* from = sums_ + (unit.place + query) * a_.head_dim;
      sum += state.sum * factor;
      for (std::int64_t j = 0; j < a_.head_dim; ++j) out[j] += from[j] * factor;
    }
    return {largest, sum};
  }

  void add_tile(const Unit& unit, Range keys, Softmax* states, float* sums) const {
    const std::int64_t n = queries_of(unit);
    float* weights = at_least(buffers().weights, n * kBlockTokens);
    float* factors = at_least(buffers().factors, n);
    queries_.score(*unit.sequence, unit.head, keys, weights);
    const auto seen = [&](std::int64_t q) { return seen_by(*unit.sequence, q / share_); };
    soften(weights, keys, n, seen, states, factors);
    const Range next = keys.end < unit.range.end ? tiles_.tile_at(keys.end, unit.range.end) : Range{keys.end, keys.end};
    queries_.weigh(*unit.sequence, unit.head, keys, next, weights, factors, sums);
  }

  const FewQueries queries_;
  std::span<const Unit> units_;
  std::span<Merge> merges_;
  float* sums_;      // (queries of all units, head_dim)
  Softmax* states_;  // (queries of all units)
};

// Sequences of many new tokens each.
class ManyTokens : public Attention {
 public:
  ManyTokens(const kernels::Table& table, const Attend& a) : Attention(table, a), queries_(table, a) {
    std::vector<Unit>& units = buffers().some_tokens;
    units.clear();
    for (std::int64_t i = 0; i < a.count; ++i) {
      if (!are_few(a.sequences[i])) add(a.sequences[i], units);
    }
    units_ = units;
  }

  std::int64_t units_count() const { return static_cast<std::int64_t>(units_.size()); }

  void run(std::int64_t index) const {
    const Unit& unit = units_[to_size(index)];
    const Range tokens = unit.range;
    const std::int64_t n = (tokens.end - tokens.begin) * share_;
    for (std::int64_t token = tokens.begin; token < tokens.end; ++token)
      queries_.load_queries(place_of(unit, token), share_, (token - tokens.begin) * share_, n);
    Softmax* states = at_least(buffers().states, n);
    float* sums = at_least(buffers().sums, n * a_.head_dim);
    std::fill_n(states, n, Softmax{-__builtin_inff(), 0});
    std::fill_n(sums, n * a_.head_dim, 0.0f);
    const std::int64_t end = seen_by(*unit.sequence, tokens.end - 1).end;
    for (std::int64_t key = queries_.first_key(seen_by(*unit.sequence, tokens.begin).begin); key < end;) {
      const Range tile = tiles_.tile_at(key, end);
      add_tile(unit, tile, tiles_.tile_at(tile.end, end), states);
      key = tile.end;
    }
    for (std::int64_t q = 0; q < n; ++q) {
      write(unit, tokens.begin + q / share_, q % share_, sums + q * a_.head_dim,
            divisor(unit.head, q % share_, states[q]));
    }
  }

 private:
  // The last tokens, which see most, come first.
  void add(const SequenceBlocks& sequence, std::vector<Unit>& units) const {
    const std::int64_t block = std::clamp<std::int64_t>(kBlockQueries / share_, 1, sequence.tokens);
    for (std::int64_t begin = (sequence.tokens - 1) / block * block; begin >= 0; begin -= block) {
      for (std::int64_t head = 0; head < a_.kv_heads; ++head)
        units.push_back({&sequence, head, {begin, std::min(begin + block, sequence.tokens)}});
    }
  }

  void add_tile(const Unit& unit, Range keys, Range next, Softmax* states) const {
    const std::int64_t n = (unit.range.end - unit.range.begin) * share_;
    tiles_.expect_values(*unit.sequence, unit.head, keys);
    queries_.load_tile(*unit.sequence, unit.head, keys);
    tiles_.expect_keys(*unit.sequence, unit.head, next);
    for (std::int64_t q = 0; q < n; q += kTogetherQueries)
      add_queries(unit, keys, {q, std::min(q + kTogetherQueries, n)}, states);
  }

  // Of a tile whose keys and values are there.
  void add_queries(const Unit& unit, Range keys, Range queries, Softmax* states) const {
    Buffers& mine = buffers();
    const auto seen = [&](std::int64_t q) { return seen_by(*unit.sequence, unit.range.begin + q / share_); };
    const std::int64_t end = std::min(seen(queries.end - 1).end, keys.end);
    if (end <= keys.begin || seen(queries.begin).begin >= keys.end) return;
    const std::size_t n = to_size(queries.end - queries.begin), count = to_size(end - keys.begin);
    const std::size_t first = to_size(queries.begin);
    float* const weights = at_least(mine.weights, kTogetherQueries * kBlockTokens);
    float* const factors = at_least(mine.factors, kTogetherQueries);
    queries_.score(first, n, count, weights);
    const auto seen_from = [&](std::int64_t q) { return seen(queries.begin + q); };
    soften(weights, keys, queries.end - queries.begin, seen_from, states + first, factors);
    queries_.weigh(weights, factors, n, count, mine.sums.data() + first * to_size(a_.head_dim));
  }

  const ManyQueries queries_;
  std::span<const Unit> units_;
};

std::int64_t products_of(const Attend& a) {
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < a.count; ++i)
    pairs += a.sequences[i].tokens * (a.sequences[i].past + a.sequences[i].tokens);
  return pairs * a.heads * a.head_dim;
}

}  // namespace

void attend(const kernels::Table& table, const Attend& a) {
  const ManyTokens many(table, a);
  const FewTokens few(table, a);
  const std::int64_t many_count = many.units_count();
  for_each_piece(many_count + few.units_count(), products_of(a) > kParallelProducts,
                 [&](std::int64_t unit) { unit < many_count ? many.run(unit) : few.run(unit - many_count); });
}

void attend(const Attend& arguments) { attend(kernels::kernels(), arguments); }

}  // namespace halfbyte::quant
