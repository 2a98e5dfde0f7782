#include "models/modules/session.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <halfbyte/error.h>

namespace halfbyte::models {

Session::Session(const ModelConfig& config, std::shared_ptr<const Rotary> rotary, std::int64_t batch,
                 std::int64_t capacity, std::optional<at::ScalarType> dtype, at::Device device)
    : rotary_(std::move(rotary)),
      table_(rotary_->table(capacity, device)),
      device_(device),
      shape_{batch, config.num_key_value_heads, capacity, config.head_dim},
      capacity_(capacity),
      lengths_(static_cast<std::size_t>(batch), 0),
      expected_(lengths_),
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

const RotaryTable* Session::fixed_rotary(std::int64_t row, std::int64_t end) const noexcept {
  const std::int64_t fixed = rotary_->config().fixed_length();
  const std::int64_t length = std::max(end, expected_[static_cast<std::size_t>(row)]);
  return fixed == 0 || length <= fixed ? &table_ : nullptr;
}

RotaryTable Session::rotary(std::int64_t row, std::int64_t first, std::int64_t count) const {
  if (fixed_rotary(row, first + count))
    return {table_.cosine.narrow(0, first, count), table_.sine.narrow(0, first, count)};
  const std::int64_t length = std::max(first + count, expected_.at(static_cast<std::size_t>(row)));
  return rotary_->at(first, count, length, device_);
}

void Session::advance(std::int64_t first_row, std::int64_t rows, std::int64_t tokens) {
  for (std::int64_t row = first_row; row < first_row + rows; ++row)
    lengths_.at(static_cast<std::size_t>(row)) += tokens;
}

namespace {

void set_rotary(Pass& pass, const Session& session) {
  std::vector<at::Tensor> cosines, sines;
  for (std::int64_t row = 0; row < pass.rows; ++row) {
    const RotaryTable table =
        session.rotary(pass.first_row + row, pass.past[static_cast<std::size_t>(row)], pass.tokens);
    cosines.push_back(table.cosine);
    sines.push_back(table.sine);
  }
  pass.cosine = (pass.rows == 1 ? cosines[0].unsqueeze(0) : at::stack(cosines)).unsqueeze(2);
  pass.sine = (pass.rows == 1 ? sines[0].unsqueeze(0) : at::stack(sines)).unsqueeze(2);
}

// The keys from `begin` on; a token sees those up to itself and, with a window, not those further back than that.
KeyRange key_range(const Pass& pass, std::int64_t begin, std::int64_t window, at::Device device) {
  KeyRange range{begin, pass.span - begin};
  const bool is_windowed = window > 0 && pass.tokens > 1;
  range.is_causal = pass.is_uniform && pass.past.front() == 0 && pass.tokens > 1 && !is_windowed;
  if (range.is_causal || (pass.is_uniform && pass.tokens == 1)) return range;
  const at::Tensor past = pass.is_uniform ? at::tensor({pass.past.front()}) : at::tensor(pass.past);
  const at::Tensor last = past.view({-1, 1, 1, 1}) + at::arange(pass.tokens, at::kLong).view({1, 1, -1, 1});
  const at::Tensor keys = at::arange(begin, pass.span, at::kLong).view({1, 1, 1, -1});
  range.mask = keys <= last;
  if (window > 0) range.mask = range.mask.logical_and(keys > last - window);
  range.mask = range.mask.to(device);
  return range;
}

}  // namespace

void check_room(const Session& session, std::int64_t span) {
  if (span <= session.capacity()) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a session of " + std::to_string(session.capacity()) + " tokens cannot take " + std::to_string(span));
}

Pass make_pass(const Session& session, std::int64_t first_row, std::int64_t rows, std::int64_t tokens,
               std::int64_t sliding_window) {
  Pass pass{};
  pass.first_row = first_row;
  pass.rows = rows;
  pass.tokens = tokens;
  for (std::int64_t row = first_row; row < first_row + rows; ++row) pass.past.push_back(session.length(row));
  const auto [shortest, longest] = std::ranges::minmax(pass.past);
  pass.span = longest + tokens;
  pass.is_uniform = shortest == longest;
  check_room(session, pass.span);
  set_rotary(pass, session);
  pass.all = key_range(pass, 0, 0, session.device());
  if (sliding_window > 0 && pass.span > sliding_window) {
    pass.window =
        key_range(pass, std::max<std::int64_t>(0, shortest - sliding_window + 1), sliding_window, session.device());
  }
  return pass;
}

}  // namespace halfbyte::models
