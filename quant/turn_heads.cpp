#include "quant/turn_heads.h"

#include <algorithm>

#include "quant/kernels/activation_kernels.h"
#include "quant/thread_pool.h"

namespace halfbyte::quant {
namespace {

// Values below this many are not worth waking other threads.
constexpr std::int64_t kParallelValues = 8 << 10;

void turn_token(const kernels::ActivationTable& kernels, const TurnHeads& a, std::int64_t index) {
  const std::int64_t row = index / a.tokens, token = index % a.tokens, turn = 2 * a.pairs;
  const std::int64_t place = row * a.table_row_stride + token * a.table_token_stride;
  const float* x = a.x + row * a.row_stride + token * a.token_stride;
  float* out = a.output + index * a.heads * a.head_dim;
  for (std::int64_t head = 0; head < a.heads; ++head, x += a.head_stride, out += a.head_dim) {
    kernels.rotate(x, a.cosines + place, a.sines + place, static_cast<std::size_t>(a.pairs), a.is_interleaved, out);
    std::copy(x + turn, x + a.head_dim, out + turn);
  }
}

}  // namespace

void turn_heads(const TurnHeads& a) {
  constexpr std::int64_t kTokensAtOnce = 8;
  const kernels::ActivationTable& kernels = *kernels::kernels().activations;
  const std::int64_t count = a.rows * a.tokens;
  const bool is_worth_threads = count * a.heads * a.head_dim > kParallelValues;
  for_each_piece((count + kTokensAtOnce - 1) / kTokensAtOnce, is_worth_threads, [&](std::int64_t piece) {
    const std::int64_t first = piece * kTokensAtOnce;
    for (std::int64_t i = first; i < std::min(count, first + kTokensAtOnce); ++i) turn_token(kernels, a, i);
  });
}

}  // namespace halfbyte::quant
