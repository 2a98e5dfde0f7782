#include "loader/files/formats/gguf/layout.h"

#include <string>

#include <halfbyte/error.h>

#include "loader/files/row_order.h"

namespace halfbyte::files {
namespace {

using M = const models::ModelConfig&;
using Picks = std::vector<std::int64_t>;

// More than any model has, and few enough to hold.
constexpr std::int64_t kMaxPeriod = std::int64_t{1} << 22;

GgufLayout with_period(std::int64_t period) {
  if (period > kMaxPeriod)
    throw Error(ErrorCode::kCorrupt, "sizes of which " + std::to_string(period) + " rows belong together");
  return {.period = period};
}

void append(Picks& picks, std::int64_t begin, std::int64_t count, std::int64_t step = 1) {
  for (std::int64_t i = 0; i < count; ++i) picks.push_back(begin + i * step);
}

// `half`: 0: the gate, 1: what it is multiplied with.
GgufLayout half_of_experts(M m, std::int64_t half) {
  const std::int64_t size = m.moe.intermediate_size;
  GgufLayout out = with_period(2 * size);
  append(out.picks, m.is_gate_interleaved ? half : half * size, size, m.is_gate_interleaved ? 2 : 1);
  return out;
}

GgufLayout share_of_latent(M m, std::int64_t begin, std::int64_t count) {
  GgufLayout out = with_period(m.latent.plain_dim + m.latent.value_dim);
  out.is_stack = true;
  append(out.picks, begin, count);
  return out;
}

std::int64_t values_a_key_head(const models::DeltaConfig& delta) {
  return delta.value_heads / delta.key_heads * delta.value_dim;
}

// Of every key head of the fused projection: queries, keys, values, gates.
void append_of_each_head(const models::DeltaConfig& delta, std::int64_t begin, std::int64_t count, Picks& picks) {
  const std::int64_t all = 2 * (delta.key_dim + values_a_key_head(delta));
  for (std::int64_t head = 0; head < delta.key_heads; ++head) append(picks, head * all + begin, count);
}

std::int64_t fused_rows(const models::DeltaConfig& delta) {
  return delta.key_heads * 2 * (delta.key_dim + values_a_key_head(delta));
}

// The first value head of every key head, the second one, and so on, after `before` units that stay. Where every key
// head has one, all stay.
GgufLayout tiled(const models::DeltaConfig& delta, std::int64_t before, std::int64_t units_a_head) {
  const std::int64_t share = delta.value_heads / delta.key_heads;
  if (share == 1) return {};
  GgufLayout out = with_period(before + delta.value_heads * units_a_head);
  append(out.picks, 0, before);
  for (std::int64_t turn = 0; turn < share; ++turn) {
    for (std::int64_t key = 0; key < delta.key_heads; ++key)
      append(out.picks, before + (key * share + turn) * units_a_head, units_a_head);
  }
  return out;
}

}  // namespace

GgufLayout turned_heads(M m) {
  if (m.head_dim % 2 != 0) return {};
  const RowOrder order{m.head_dim, 1};
  GgufLayout out = with_period(m.head_dim);
  out.picks.resize(static_cast<std::size_t>(m.head_dim));
  for (std::int64_t row = 0; row < m.head_dim; ++row) out.picks[static_cast<std::size_t>(order.source(row))] = row;
  return out;
}

GgufLayout gate_rows(M m) { return half_of_experts(m, 0); }
GgufLayout up_rows(M m) { return half_of_experts(m, 1); }

GgufLayout gate_values(M m) {
  GgufLayout out = half_of_experts(m, 0);
  out.unit = 1;
  return out;
}

GgufLayout up_values(M m) {
  GgufLayout out = half_of_experts(m, 1);
  out.unit = 1;
  return out;
}

GgufLayout latent_keys(M m) {
  GgufLayout out = share_of_latent(m, 0, m.latent.plain_dim);
  out.is_transposed = true;
  return out;
}

GgufLayout latent_values(M m) { return share_of_latent(m, m.latent.plain_dim, m.latent.value_dim); }

GgufLayout delta_mixed_rows(M m) {
  GgufLayout out = with_period(fused_rows(m.delta));
  append_of_each_head(m.delta, 0, m.delta.key_dim, out.picks);
  append_of_each_head(m.delta, m.delta.key_dim, m.delta.key_dim, out.picks);
  append_of_each_head(m.delta, 2 * m.delta.key_dim, values_a_key_head(m.delta), out.picks);
  return out;
}

GgufLayout delta_gate_rows(M m) {
  GgufLayout out = with_period(fused_rows(m.delta));
  const std::int64_t values = values_a_key_head(m.delta);
  append_of_each_head(m.delta, 2 * m.delta.key_dim + values, values, out.picks);
  return out;
}

GgufLayout tiled_mixed_rows(M m) { return tiled(m.delta, 2 * m.delta.key_heads * m.delta.key_dim, m.delta.value_dim); }
GgufLayout tiled_value_rows(M m) { return tiled(m.delta, 0, m.delta.value_dim); }
GgufLayout tiled_heads(M m) { return tiled(m.delta, 0, 1); }

GgufLayout tiled_value_columns(M m) {
  GgufLayout out = tiled(m.delta, 0, 1);
  out.unit = m.delta.value_dim;
  return out;
}

}  // namespace halfbyte::files
