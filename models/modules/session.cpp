#include "models/modules/session.h"

#include <algorithm>

#include <halfbyte/error.h>

namespace halfbyte::models {
namespace {

std::string layer_prefix(std::size_t layer) { return "layers." + std::to_string(layer) + "."; }

}  // namespace

Session::Session(std::vector<std::unique_ptr<LayerState>> layers, std::vector<std::shared_ptr<const Rotary>> rotaries,
                 at::Device device)
    : layers_(std::move(layers)), rotaries_(std::move(rotaries)), device_(device) {}

std::vector<std::unique_ptr<LayerState>> Session::forked() const {
  std::vector<std::unique_ptr<LayerState>> layers;
  for (const auto& layer : layers_) layers.push_back(layer ? layer->fork() : nullptr);
  return layers;
}

Session Session::fork() const {
  Session out(forked(), rotaries_, device_);
  out.length_ = length_;
  out.expected_ = expected_;
  out.trace_ = trace_.fork();
  return out;
}

void Session::put_back(Contents contents) {
  layers_ = std::move(contents.layers);
  length_ = contents.length;
}

std::int64_t Session::bytes() const noexcept {
  std::int64_t all = 0;
  for (const auto& layer : layers_) all += layer ? layer->bytes() : 0;
  return all;
}

std::int64_t Session::bytes_for(std::int64_t tokens) const noexcept {
  std::int64_t all = 0;
  for (const auto& layer : layers_) all += layer ? layer->bytes_for(tokens) : 0;
  return all;
}

std::shared_ptr<const RotaryTable> Session::fixed_rotary(std::size_t rope, std::int64_t end) const {
  const std::int64_t fixed = rotaries_[rope]->config().fixed_length();
  return fixed == 0 || std::max(end, expected_) <= fixed ? rotaries_[rope]->table(end, device_) : nullptr;
}

RotaryTable Session::rotary(std::size_t rope, std::int64_t first, std::int64_t count) const {
  if (const auto table = fixed_rotary(rope, first + count))
    return {table->cosine.narrow(0, first, count), table->sine.narrow(0, first, count)};
  return rotaries_[rope]->at(first, count, std::max(first + count, expected_), device_);
}

void Session::commit(std::int64_t tokens) {
  length_ += tokens;
  for (const auto& layer : layers_) {
    if (layer) layer->commit(length_);
  }
}

void Session::visit_memory(const LayerState::MemoryVisitor& visit) const {
  for (const auto& layer : layers_) {
    if (layer) layer->visit_memory(visit);
  }
}

KeyValues Session::key_values() const noexcept {
  const auto is_int8 = [](const auto& layer) { return layer && layer->key_values() == KeyValues::kInt8; };
  return std::ranges::any_of(layers_, is_int8) ? KeyValues::kInt8 : KeyValues::kOperand;
}

std::int64_t Session::least() const noexcept {
  std::int64_t out = 0;
  for (const auto& layer : layers_) out = std::max(out, layer ? layer->least(length_) : 0);
  return out;
}

void Session::cut(std::int64_t length) {
  if (length > length_ || length < 0 || (length > 0 && length < least())) {
    throw Error(ErrorCode::kInvalidArgument, "a session of " + std::to_string(length_) + " tokens cannot be cut to " +
                                                 std::to_string(length) + "; it can to 0, and to " +
                                                 std::to_string(least()) + " and more");
  }
  trace_.cut(length);
  length_ = length;
  for (const auto& layer : layers_) {
    if (layer) layer->cut(length);
  }
}

std::int64_t Session::go_back(std::int64_t most, std::span<const Session> earlier) {
  const std::int64_t wanted = std::min(most, length_);
  const Session* best = nullptr;
  for (const Session& one : earlier) {
    if (one.length_ <= wanted && (!best || best->length_ < one.length_)) best = &one;
  }
  if (wanted >= least()) {
    cut(wanted);
  } else if (best) {
    *this = best->fork();
  } else {
    cut(0);
  }
  return length_;
}

bool Session::is_cut_of(const Session* whole, std::size_t layer, std::int64_t length) const {
  return whole && whole->expected_ == expected_ && whole->layers_[layer]->least(whole->length_) <= length;
}

void Session::check_alone() const {
  if (trace_.is_followed())
    throw Error(ErrorCode::kUnsupported, "ranks of a model have parts of what a file of a prompt would hold");
}

std::vector<StateTensor> Session::tensors(const Session* whole) const {
  check_alone();
  std::vector<StateTensor> out;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!layers_[i] || is_cut_of(whole, i, length_)) continue;
    for (StateTensor& one : layers_[i]->tensors(length_)) {
      one.name = layer_prefix(i) + one.name;
      out.push_back(std::move(one));
    }
  }
  return out;
}

void Session::restore(std::int64_t length, std::int64_t expected, const StateSource& source, const std::string& prefix,
                      const Session* whole) {
  check_alone();
  expected_ = expected;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!layers_[i]) continue;
    if (is_cut_of(whole, i, length)) {
      layers_[i] = whole->layers_[i]->fork();
      layers_[i]->cut(length);
    } else {
      layers_[i]->restore(length, LayerSource(source, prefix + layer_prefix(i)));
    }
  }
  length_ = length;
}

}  // namespace halfbyte::models
