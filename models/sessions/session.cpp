#include "models/sessions/session.h"

#include <algorithm>

#include <halfbyte/error.h>

namespace halfbyte::models {

Session::Session(Layers layers, Ropes ropes, bool is_on_cpu)
    : layers_(std::move(layers)), ropes_(std::move(ropes)), is_on_cpu_(is_on_cpu) {}

Session::Layers Session::forked() const {
  Layers layers;
  for (const auto& layer : layers_) layers.push_back(layer ? layer->fork() : nullptr);
  return layers;
}

Session Session::fork() const {
  Session out(forked(), ropes_, is_on_cpu_);
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

bool Session::is_rope_fixed(std::size_t rope, std::int64_t end) const {
  const std::int64_t fixed = ropes_[rope]->config().fixed_length();
  return fixed == 0 || std::max(end, expected_) <= fixed;
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

}  // namespace halfbyte::models
