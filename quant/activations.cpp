// Rows through the kernels: norms, rotary and gates, in one parallel region each where there is enough to do.
#include "quant/activations.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "quant/int8_blocks.h"
#include "quant/grown.h"
#include "quant/kernels/activation_kernels.h"
#include "quant/kernels/dtypes.h"
#include "quant/thread_pool.h"
#include "quant/with_activations.h"

namespace halfbyte::quant {

namespace {

using kernels::Byte;
using kernels::kFloatBytes;

// Up to so many values are not worth waking other threads: of norms and heads, whose rows other threads have in part in
// their caches, and of the rest.
constexpr std::int64_t kParallelRowValues = 4 << 10, kParallelValues = 8 << 10;
// Values of a gate that are made before they are converted: they stay in the first-level cache.
constexpr std::int64_t kGateChunk = 2048;

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }
Byte* to_bytes(std::byte* data) { return reinterpret_cast<Byte*>(data); }
const Byte* to_bytes(const std::byte* data) { return reinterpret_cast<const Byte*>(data); }

float sum_of(const float* x, std::size_t size) {
  constexpr std::size_t kSums = 16;
  float sums[kSums] = {};
  const std::size_t whole = size - size % kSums;
  for (std::size_t i = 0; i < whole; i += kSums) {
    for (std::size_t j = 0; j < kSums; ++j) sums[j] += x[i + j];
  }
  return std::accumulate(x + whole, x + size, std::accumulate(sums, sums + kSums, 0.0f));
}

// A norm with its weight and bias in float32, in `buffer`.
struct NormRow {
  const float *weight, *bias;
  float offset, epsilon;
  bool is_centred;

  NormRow(const kernels::Table& table, const Norm& norm, std::int64_t size, std::vector<float>& buffer)
      : weight(nullptr), bias(nullptr), offset(norm.offset), epsilon(norm.epsilon), is_centred(norm.is_centred) {
    if (!norm.weight) return;
    float* values = at_least(buffer, norm.bias ? 2 * size : size);
    table.load(kernels::to_float(norm.dtype), to_bytes(norm.weight), to_size(size), values);
    weight = values;
    if (!norm.bias) return;
    table.load(kernels::to_float(norm.dtype), to_bytes(norm.bias), to_size(size), values + size);
    bias = values + size;
  }

  float factor(float sum_of_squares, std::size_t size) const {
    return 1.0f / __builtin_sqrtf(sum_of_squares / static_cast<float>(size) + epsilon);
  }

  void apply(const kernels::ActivationTable& table, const float* x, std::size_t size, float* out) const {
    if (is_centred) {
      const float mean = sum_of(x, size) / static_cast<float>(size);
      std::transform(x, x + size, out, [&](float value) { return value - mean; });
      x = out;
    }
    table.scale(x, factor(table.sum_of_squares(x, size), size), weight, offset, size, out);
    if (bias) std::transform(out, out + size, bias, out, std::plus<>());
  }
};

// One thread's buffers, kept from call to call.
struct Buffers {
  std::vector<float> norm, delta_norm, value_norm, row, key;
};

Buffers& buffers() {
  thread_local Buffers mine;
  return mine;
}

class ResidualRows {
 public:
  ResidualRows(const kernels::Table& table, const ResidualNorm& a)
      : table_(table),
        kernels_(*table.activations),
        a_(a),
        norm_(table, a.norm, a.size, buffers().norm),
        delta_norm_(table, a.delta_norm, a.size, buffers().delta_norm) {}

  void run(std::int64_t row) const {
    const std::int64_t begin = row * a_.size;
    const std::size_t size = to_size(a_.size);
    float* stream = a_.stream + begin;
    float* own = at_least(buffers().row, a_.size);
    if (a_.delta) {
      const float* delta = a_.delta + begin;
      if (delta_norm_.weight) {
        delta_norm_.apply(kernels_, delta, size, own);
        delta = own;
      }
      if (a_.delta_scale != 1.0f) {
        std::transform(delta, delta + size, own, [&](float value) { return value * a_.delta_scale; });
        delta = own;
      }
      kernels_.add(a_.base + begin, delta, size, stream);
    }
    const float* result = stream;
    if (norm_.weight) {
      float* out = a_.normalised ? a_.normalised + begin : own;
      norm_.apply(kernels_, stream, size, out);
      result = out;
    } else if (a_.normalised) {
      std::copy_n(stream, size, a_.normalised + begin);
    }
    if (!a_.output) return;
    const kernels::Float to = kernels::to_float(a_.output_dtype);
    table_.store(to, result, size, to_bytes(a_.output) + to_size(begin) * kFloatBytes[to]);
  }

 private:
  const kernels::Table& table_;
  const kernels::ActivationTable& kernels_;
  const ResidualNorm& a_;
  NormRow norm_, delta_norm_;
};

// The heads of one token, one after another through a buffer of one head.
class TokenHeads {
 public:
  TokenHeads(const kernels::Table& table, const PlaceHeads& a)
      : table_(table),
        kernels_(*table.activations),
        a_(a),
        query_norm_(table, a.query_norm, norm_size(a, a.heads), buffers().norm),
        key_norm_(table, a.key_norm, norm_size(a, a.kv_heads), buffers().delta_norm),
        value_norm_(table, a.value_norm, a.head_dim, buffers().value_norm),
        query_dtype_(kernels::to_float(a.query_dtype)),
        is_int8_(a.key_dtype == Dtype::kInt8),
        key_dtype_(is_int8_ ? kernels::kFloat32 : kernels::to_float(a.key_dtype)),
        value_dtype_(is_int8_ ? kernels::kFloat32 : kernels::to_float(a.value_dtype)) {}

  // Of the pass's tokens.
  bool run(std::int64_t index) const {
    const SequenceBlocks* sequence = std::upper_bound(a_.sequences, a_.sequences + a_.count, index, is_before) - 1;
    const Token token{sequence, sequence - a_.sequences, index, index - sequence->first};
    const std::int64_t position = sequence->past + token.own;
    bool is_finite = true;
    const Rows queries{a_.query, query_norm_, factor_of_all(a_.query, query_norm_, index, a_.heads), query_dtype_,
                       growth_at(position)};
    for (std::int64_t head = 0; head < a_.heads; ++head) {
      Byte* to = to_bytes(a_.queries) + place(index * a_.heads + head, query_dtype_);
      is_finite &= turned(queries, token, head, to);
    }
    const std::int64_t block = position / kBlockTokens, place_in_block = position % kBlockTokens;

    const Rows keys{a_.key, key_norm_, factor_of_all(a_.key, key_norm_, index, a_.kv_heads), key_dtype_};
    for (std::int64_t head = 0; head < a_.kv_heads && is_int8_; ++head) {
      is_finite &= store_codes(keys, token, head, place_in_block, sequence->keys[block], sequence->values[block]);
    }
    for (std::int64_t head = 0; head < a_.kv_heads && !is_int8_; ++head) {
      const std::int64_t at = head * kBlockTokens + place_in_block;
      is_finite &= turned(keys, token, head, to_bytes(sequence->keys[block]) + place(at, key_dtype_));
      table_.store(value_dtype_, value(index, head), to_size(a_.head_dim),
                   to_bytes(sequence->values[block]) + place(at, value_dtype_));
    }
    return is_finite;
  }

 private:
  static bool is_before(std::int64_t index, const SequenceBlocks& sequence) { return index < sequence.first; }

  struct Token {
    const SequenceBlocks* sequence;
    std::int64_t sequence_index;
    std::int64_t index;  // in the pass
    std::int64_t own;    // in the sequence's new tokens
  };

  // The queries or the keys of a token.
  struct Rows {
    const HeadRows& heads;
    const NormRow& norm;
    float factor;  // of all heads, where they are normalised together
    kernels::Float dtype;
    float growth = 1.0f;
  };

  static std::int64_t norm_size(const PlaceHeads& a, std::int64_t heads) {
    return a.norm == HeadNorm::kAllHeads ? heads * a.head_dim : a.head_dim;
  }

  float factor_of_all(const HeadRows& rows, const NormRow& norm, std::int64_t index, std::int64_t heads) const {
    if (!norm.weight || a_.norm != HeadNorm::kAllHeads) return 1.0f;
    float sum = 0.0f;
    for (std::int64_t head = 0; head < heads; ++head)
      sum += kernels_.sum_of_squares(source(rows, index, head), to_size(a_.head_dim));
    return norm.factor(sum, to_size(heads * a_.head_dim));
  }

  float growth_at(std::int64_t position) const {
    if (a_.growth == 0.0f) return 1.0f;
    const auto times = static_cast<float>((position + a_.growth_shift) / a_.growth_length);
    return 1.0f + a_.growth * std::log(1.0f + times);
  }

  std::size_t place(std::int64_t head, kernels::Float dtype) const {
    return to_size(head * a_.head_dim) * kFloatBytes[dtype];
  }

  static const float* source(const HeadRows& rows, std::int64_t index, std::int64_t head) {
    return rows.data + index * rows.token_stride + head * rows.head_stride;
  }

  const float* value(std::int64_t index, std::int64_t head) const {
    const float* x = source(a_.value, index, head);
    if (!value_norm_.weight) return x;
    float* out = at_least(buffers().row, a_.head_dim);
    value_norm_.apply(kernels_, x, to_size(a_.head_dim), out);
    return out;
  }

  void normalise(const Rows& rows, std::int64_t head, const float* x, float* out) const {
    const std::size_t size = to_size(a_.head_dim);
    if (a_.norm != HeadNorm::kAllHeads) return rows.norm.apply(kernels_, x, size, out);
    kernels_.scale(x, rows.factor, rows.norm.weight + head * a_.head_dim, rows.norm.offset, size, out);
  }

  bool store_codes(const Rows& keys, const Token& token, std::int64_t head, std::int64_t place, std::byte* key_block,
                   std::byte* value_block) const {
    const Int8Blocks blocks{a_.kv_heads, a_.head_dim};
    float* const key = at_least(buffers().key, a_.head_dim);
    const bool is_finite = turned(keys, token, head, reinterpret_cast<Byte*>(key));
    blocks.store_key(key, key_block, head, place);
    blocks.store_value(value(token.index, head), value_block, head, place);
    return is_finite;
  }

  bool turned(const Rows& rows, const Token& token, std::int64_t head, Byte* to) const {
    const std::size_t size = to_size(a_.head_dim), pairs = to_size(a_.pairs);
    float* normal = at_least(buffers().row, 2 * a_.head_dim);
    float* out = normal + size;
    const float* x = source(rows.heads, token.index, head);
    const bool is_last = a_.norm == HeadNorm::kEachTurnedHead;
    if (rows.norm.weight && !is_last) {
      normalise(rows, head, x, normal);
      x = normal;
    }
    const std::int64_t turn = token.own * a_.pairs;
    const float *cosines = a_.cosines[token.sequence_index], *sines = a_.sines[token.sequence_index];
    kernels_.rotate(x, cosines + turn, sines + turn, pairs, a_.is_interleaved, out);
    std::copy(x + 2 * pairs, x + size, out + 2 * pairs);
    if (rows.norm.weight && is_last) {
      normalise(rows, head, out, normal);
      out = normal;
    }
    if (rows.growth != 1.0f) std::transform(out, out + size, out, [&](float value) { return value * rows.growth; });
    table_.store(rows.dtype, out, size, to);
    return table_.first_non_finite(rows.dtype, to, size) == size;
  }

  const kernels::Table& table_;
  const kernels::ActivationTable& kernels_;
  const PlaceHeads& a_;
  NormRow query_norm_, key_norm_, value_norm_;
  kernels::Float query_dtype_;
  bool is_int8_;  // keys and values
  kernels::Float key_dtype_, value_dtype_;
};

template <class Value>
void reorder_row(const std::byte* input, const std::int64_t* order, std::int64_t columns, std::byte* output) {
  for (std::int64_t i = 0; i < columns; ++i)
    std::memcpy(output + i * std::int64_t{sizeof(Value)}, input + order[i] * std::int64_t{sizeof(Value)},
                sizeof(Value));
}

constexpr std::array<kernels::GateFunction, 4> kGates = {kernels::kSiluGate, kernels::kGeluGate, kernels::kGeluTanhGate,
                                                         kernels::kSigmoidGate};  // indexed by Gate

}  // namespace

kernels::GateFunction gate_function(Gate gate) noexcept { return kGates[static_cast<std::size_t>(gate)]; }

void residual_norm(const kernels::Table& table, const ResidualNorm& arguments) {
  const ResidualRows rows(table, arguments);
  for_each_piece(arguments.rows, arguments.rows * arguments.size > kParallelRowValues,
                 [&](std::int64_t row) { rows.run(row); });
}

bool place_heads(const kernels::Table& table, const PlaceHeads& arguments) {
  const TokenHeads heads(table, arguments);
  if (arguments.count == 0) return true;
  const SequenceBlocks& last = arguments.sequences[arguments.count - 1];
  const std::int64_t count = last.first + last.tokens;
  std::atomic<bool> is_finite = true;
  for_each_piece(count, count * arguments.heads * arguments.head_dim > kParallelRowValues, [&](std::int64_t token) {
    if (!heads.run(token)) is_finite = false;
  });
  return is_finite;
}

void gate_rows(const kernels::Table& table, const GateRows& a) {
  const auto function = table.activations->gate[gate_function(a.gate)];
  const kernels::Float to = kernels::to_float(a.output_dtype);
  const std::int64_t chunks = (a.size + kGateChunk - 1) / kGateChunk;
  for_each_piece(a.rows * chunks, a.rows * a.size > kParallelValues, [&](std::int64_t i) {
    const std::int64_t row = i / chunks, begin = i % chunks * kGateChunk;
    const std::size_t count = to_size(std::min(kGateChunk, a.size - begin));
    float values[kGateChunk];
    function(a.x + row * a.stride + begin, a.up + row * a.up_stride + begin, count, values);
    table.store(to, values, count, to_bytes(a.output) + to_size(row * a.size + begin) * kFloatBytes[to]);
  });
}

void reorder_columns(const ReorderColumns& a) {
  const std::int64_t row_bytes = a.columns * size_bytes(a.dtype);
  const auto one = size_bytes(a.dtype) == 4 ? reorder_row<std::uint32_t> : reorder_row<std::uint16_t>;
  for_each_piece(a.rows, a.rows * a.columns > kParallelValues, [&](std::int64_t row) {
    one(a.input + row * row_bytes, a.order, a.columns, a.output + row * row_bytes);
  });
}

void mix_rows(const MixRows& a) {
  constexpr std::int64_t kSome = 32;  // values whose sums stay in registers
  const auto mix = [&](std::int64_t row, std::int64_t begin, std::int64_t count) {
    float sums[kSome] = {};
    const auto add = [&](const float* from, float share) {
      if (count == kSome) {
        for (std::int64_t i = 0; i < kSome; ++i) sums[i] += share * from[begin + i];
      } else {
        for (std::int64_t i = 0; i < count; ++i) sums[i] += share * from[begin + i];
      }
    };
    for (std::int64_t i = row * a.count; i < (row + 1) * a.count; ++i) add(a.input + a.from[i] * a.size, a.shares[i]);
    if (a.beside) add(a.beside + row * a.size, a.beside_shares ? a.beside_shares[row] : 1.0f);
    std::copy_n(sums, count, a.output + row * a.size + begin);
  };
  for_each_piece(a.rows, a.rows * a.size * a.count > kParallelValues, [&](std::int64_t row) {
    for (std::int64_t begin = 0; begin < a.size; begin += kSome) mix(row, begin, std::min(kSome, a.size - begin));
  });
}

void residual_norm(const ResidualNorm& arguments) { residual_norm(kernels::kernels(), arguments); }
bool place_heads(const PlaceHeads& arguments) { return place_heads(kernels::kernels(), arguments); }
void gate_rows(const GateRows& arguments) { gate_rows(kernels::kernels(), arguments); }

std::size_t first_largest(std::span<const float> values) {
  return kernels::kernels().activations->first_largest(values.data(), values.size());
}

bool are_finite(std::span<const float> values) {
  return kernels::kernels().activations->are_finite(values.data(), values.size());
}

}  // namespace halfbyte::quant
