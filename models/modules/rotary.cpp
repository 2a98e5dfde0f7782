#include "models/modules/rotary.h"

#include <array>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/error.h>

#include "models/modules/rotary_turn.h"

namespace halfbyte::models {
namespace {

// Where the first value of every pair stands, and the second.
std::array<at::Tensor, 2> pairs_of(const at::Tensor& x, std::int64_t pairs, bool is_interleaved) {
  if (!is_interleaved) return {x.narrow(-1, 0, pairs), x.narrow(-1, pairs, pairs)};
  const at::Tensor both = x.narrow(-1, 0, 2 * pairs).unflatten(-1, {pairs, 2});
  return {both.select(-1, 0), both.select(-1, 1)};
}

}  // namespace

at::Tensor inverse_frequencies(const RopeConfig& rope, std::int64_t length) {
  return at::tensor(rotary_frequencies(rope, length), at::kFloat);
}

Rotary::Rotary(const RopeConfig& rope, const Compute& compute, at::ScalarType buffer_dtype)
    : RotaryTables(rope), compute_(compute) {
  register_buffer("inv_freq", at::tensor(frequencies(), at::kFloat).to(buffer_dtype));
}

RotaryTable Rotary::tensors_of(const RotaryRows& rows, at::Device device) const {
  const auto tensor = [&](const std::vector<float>& values) {
    return compute_.as_stream(at::tensor(values, at::kFloat).view({rows.positions, rows.pairs})).to(device);
  };
  return {tensor(rows.cosines), tensor(rows.sines)};
}

// A table may outlive the mode of the thread that made it: it is an ordinary tensor, without gradients.
std::shared_ptr<const RotaryTable> Rotary::table(std::int64_t positions, at::Device device) const {
  const std::lock_guard lock(mutex_);
  if (!table_ || table_->cosine.size(0) < positions || table_->cosine.device() != device) {
    const c10::InferenceMode ordinary(false);
    const at::NoGradGuard no_gradients;
    table_ = std::make_shared<const RotaryTable>(tensors_of(*rows(positions), device));
  }
  return table_;
}

RotaryTable Rotary::of(const Session& session, std::size_t rope, std::int64_t first, std::int64_t count,
                       at::Device device) {
  const auto& rotary = dynamic_cast<const Rotary&>(*session.ropes()[rope]);
  const std::int64_t end = first + count;
  if (!session.is_rope_fixed(rope, end))
    return rotary.tensors_of(rotary.rows(first, count, std::max(end, session.expected())), device);
  const auto table = rotary.table(end, device);
  return {table->cosine.narrow(0, first, count), table->sine.narrow(0, first, count)};
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine, bool is_interleaved) {
  if (x.scalar_type() != cosine.scalar_type() || x.scalar_type() != sine.scalar_type()) {
    throw Error(ErrorCode::kContract, std::string("rotary table is ") + c10::toString(cosine.scalar_type()) +
                                          " but the query is " + c10::toString(x.scalar_type()) +
                                          "; load with a dtype policy instead of casting modules");
  }
  if (has_rotary_turn(x, cosine, sine)) return rotary_turn(x, cosine, sine, is_interleaved);
  const std::int64_t pairs = cosine.size(-1);
  const auto [first, second] = pairs_of(x, pairs, is_interleaved);
  const at::Tensor turned_first = first * cosine - second * sine;
  const at::Tensor turned_second = second * cosine + first * sine;
  std::vector<at::Tensor> parts = {turned_first, turned_second};
  if (is_interleaved) parts = {at::stack(parts, -1).flatten(-2)};
  if (2 * pairs < x.size(-1)) parts.push_back(x.narrow(-1, 2 * pairs, x.size(-1) - 2 * pairs));
  return at::cat(parts, -1);
}

}  // namespace halfbyte::models
