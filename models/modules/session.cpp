#include "models/modules/session.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <halfbyte/error.h>

namespace halfbyte::models {

Session::Session(const ModelConfig& config, RotaryTable rotary, std::int64_t batch, std::int64_t capacity,
                 std::optional<at::ScalarType> dtype, at::Device device)
    : rotary_(std::move(rotary)),
      device_(device),
      shape_{batch, config.num_key_value_heads, capacity, config.head_dim},
      capacity_(capacity),
      lengths_(static_cast<std::size_t>(batch), 0),
      keys_(static_cast<std::size_t>(config.num_hidden_layers)),
      values_(keys_.size()) {
  for (std::int64_t layer = 0; dtype && layer < config.num_hidden_layers; ++layer) {
    cache(keys_, layer, *dtype);
    cache(values_, layer, *dtype);
  }
}

const at::Tensor& Session::cache(std::vector<at::Tensor>& caches, std::int64_t layer, at::ScalarType fresh) {
  at::Tensor& cache = caches.at(static_cast<std::size_t>(layer));
  if (cache.defined()) return cache;
  const auto options = at::TensorOptions().dtype(fresh).device(device_);
  // Rows of different lengths mask the places beyond their own: those must hold numbers, since 0 * NaN is NaN.
  cache = batch() > 1 ? at::zeros(shape_, options) : at::empty(shape_, options);
  return cache;
}

void Session::advance(std::int64_t first_row, std::int64_t rows, std::int64_t tokens) {
  for (std::int64_t row = first_row; row < first_row + rows; ++row)
    lengths_.at(static_cast<std::size_t>(row)) += tokens;
}

namespace {

void set_rotary(Pass& pass, const RotaryTable& table) {
  const auto pick = [&](const at::Tensor& t) {
    if (pass.is_uniform) return t.narrow(0, pass.past.front(), pass.tokens).unsqueeze(0).unsqueeze(2);
    at::Tensor positions = at::tensor(pass.past).unsqueeze(1) + at::arange(pass.tokens, at::kLong);
    return t.index_select(0, positions.flatten().to(t.device())).view({pass.rows, pass.tokens, 1, t.size(1)});
  };
  pass.cosine = pick(table.cosine);
  pass.sine = pick(table.sine);
}

void set_mask(Pass& pass, at::Device device) {
  pass.is_causal = pass.is_uniform && pass.past.front() == 0 && pass.tokens > 1;
  if (pass.is_causal || (pass.is_uniform && pass.tokens == 1)) return;
  const at::Tensor past = pass.is_uniform ? at::tensor({pass.past.front()}) : at::tensor(pass.past);
  const at::Tensor last = past.view({-1, 1, 1, 1}) + at::arange(pass.tokens, at::kLong).view({1, 1, -1, 1});
  pass.mask = (at::arange(pass.span, at::kLong).view({1, 1, 1, -1}) <= last).to(device);
}

}  // namespace

Pass make_pass(const Session& session, std::int64_t first_row, std::int64_t rows, std::int64_t tokens) {
  Pass pass{};
  pass.first_row = first_row;
  pass.rows = rows;
  pass.tokens = tokens;
  for (std::int64_t row = first_row; row < first_row + rows; ++row) pass.past.push_back(session.length(row));
  const auto [shortest, longest] = std::ranges::minmax(pass.past);
  pass.span = longest + tokens;
  pass.is_uniform = shortest == longest;
  if (pass.span > session.capacity()) {
    throw Error(ErrorCode::kInvalidArgument, "a session of " + std::to_string(session.capacity()) +
                                                 " tokens cannot take " + std::to_string(pass.span));
  }
  set_rotary(pass, session.rotary());
  set_mask(pass, session.rotary().cosine.device());
  return pass;
}

}  // namespace halfbyte::models
