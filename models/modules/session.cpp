#include "models/modules/session.h"

#include <algorithm>

#include <halfbyte/error.h>

namespace halfbyte::models {
namespace {

std::vector<RotaryTable> tables_of(std::span<const std::shared_ptr<const Rotary>> rotaries, std::int64_t capacity,
                                   at::Device device) {
  std::vector<RotaryTable> out;
  for (const auto& rotary : rotaries) out.push_back(rotary->table(capacity, device));
  return out;
}

[[noreturn]] void refuse(std::int64_t row, const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "row " + std::to_string(row) + " of a session " + problem);
}

}  // namespace

Session::Session(std::int64_t batch, std::int64_t capacity, std::vector<std::unique_ptr<LayerState>> layers,
                 std::vector<std::shared_ptr<const Rotary>> rotaries, at::Device device)
    : layers_(std::move(layers)),
      rotaries_(std::move(rotaries)),
      tables_(tables_of(rotaries_, capacity, device)),
      device_(device),
      capacity_(capacity),
      lengths_(static_cast<std::size_t>(batch), 0),
      expected_(lengths_),
      is_held_(lengths_.size(), false) {}

const RotaryTable* Session::fixed_rotary(std::size_t rope, std::int64_t row, std::int64_t end) const noexcept {
  const std::int64_t fixed = rotaries_[rope]->config().fixed_length();
  const std::int64_t length = std::max(end, expected_[static_cast<std::size_t>(row)]);
  return fixed == 0 || length <= fixed ? &tables_[rope] : nullptr;
}

RotaryTable Session::rotary(std::size_t rope, std::int64_t row, std::int64_t first, std::int64_t count) const {
  if (const RotaryTable* table = fixed_rotary(rope, row, first + count))
    return {table->cosine.narrow(0, first, count), table->sine.narrow(0, first, count)};
  const std::int64_t length = std::max(first + count, expected_.at(static_cast<std::size_t>(row)));
  return rotaries_[rope]->at(first, count, length, device_);
}

void Session::commit(std::int64_t first_row, std::int64_t rows, std::int64_t tokens) {
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    if (is_held_.at(static_cast<std::size_t>(row))) continue;
    lengths_[static_cast<std::size_t>(row)] += tokens;
    for (const auto& layer : layers_) {
      if (layer) layer->commit(row, tokens);
    }
  }
}

bool Session::can_rewind() const noexcept {
  return std::ranges::all_of(layers_, [](const auto& layer) { return !layer || layer->can_rewind(); });
}

// Snapshots of what is cut off are good no more: other tokens will stand there.
void Session::shorten(std::int64_t row, std::int64_t length) {
  lengths_.at(static_cast<std::size_t>(row)) = length;
  is_held_[static_cast<std::size_t>(row)] = false;
  std::erase_if(marks_, [&](const Mark& mark) {
    const auto is_good = mark.is_good.lock();
    const bool is_cut = is_good && mark.row == row && mark.length > length;
    if (is_cut) *is_good = false;
    return !is_good || is_cut;
  });
}

void Session::rewind(std::int64_t row, std::int64_t length) {
  if (!can_rewind()) refuse(row, "cannot be cut: a layer keeps a state that only a snapshot brings back");
  if (length < 0 || length > this->length(row))
    refuse(row, "has " + std::to_string(this->length(row)) + " tokens; it cannot be cut to " + std::to_string(length));
  shorten(row, length);
}

void Session::reset(std::int64_t row) {
  shorten(row, 0);
  for (const auto& layer : layers_) {
    if (layer) layer->reset(row);
  }
}

Snapshot Session::snapshot(std::int64_t row) {
  Snapshot out;
  out.row_ = row;
  out.length_ = length(row);
  for (const auto& layer : layers_) out.layers_.push_back(layer ? layer->save(row) : std::vector<at::Tensor>());
  out.is_good_ = std::make_shared<bool>(true);
  std::erase_if(marks_, [](const Mark& mark) { return mark.is_good.expired(); });
  marks_.push_back({row, out.length_, out.is_good_});
  return out;
}

void Session::restore(const Snapshot& snapshot) {
  if (!snapshot.is_good())
    refuse(snapshot.row_, "has been shorter than the " + std::to_string(snapshot.length_) + " tokens of a snapshot");
  shorten(snapshot.row_, snapshot.length_);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i]) layers_[i]->restore(snapshot.row_, snapshot.layers_[i]);
  }
}

std::int64_t Session::go_back(std::int64_t row, std::int64_t most, std::span<const Snapshot> snapshots) {
  if (can_rewind()) {
    rewind(row, std::min(most, length(row)));
  } else if (length(row) > most) {
    const Snapshot* best = nullptr;
    for (const Snapshot& snapshot : snapshots) {
      const bool fits = snapshot.row_ == row && snapshot.is_good() && snapshot.length_ <= most;
      if (fits && (!best || best->length_ < snapshot.length_)) best = &snapshot;
    }
    best ? restore(*best) : reset(row);
  } else {
    is_held_.at(static_cast<std::size_t>(row)) = false;
  }
  return length(row);
}

void Session::grow(std::int64_t capacity) {
  if (capacity < capacity_) {
    throw Error(ErrorCode::kInvalidArgument,
                "a session of " + std::to_string(capacity_) + " tokens cannot grow to " + std::to_string(capacity));
  }
  for (const auto& layer : layers_) {
    if (layer) layer->grow(capacity, std::ranges::max(lengths_));
  }
  tables_ = tables_of(rotaries_, capacity, device_);
  capacity_ = capacity;
}

}  // namespace halfbyte::models
