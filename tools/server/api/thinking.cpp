#include "tools/server/api/thinking.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "tools/server/api/markers.h"

namespace halfbyte::server {
namespace {

constexpr std::string_view kOpen = "<think>";
constexpr std::array<std::string_view, 1> kClose = {"</think>"};

std::size_t blanks(std::string_view text) { return std::min(text.find_first_not_of(" \r\n\t"), text.size()); }

}  // namespace

ThinkingSplitter::Parts ThinkingSplitter::push(const std::string& piece) {
  Parts out;
  held_ += piece;
  if (state_ == State::kBeginning) {
    const std::string_view begun = std::string_view(held_).substr(blanks(held_));
    if (begun.size() < kOpen.size() && kOpen.starts_with(begun)) return out;
    const bool thinks = begun.starts_with(kOpen);
    if (thinks) held_.erase(0, blanks(held_) + kOpen.size());
    state_ = thinks ? State::kThinking : State::kAnswer;
  }
  if (state_ == State::kThinking) {
    const FoundMarker close = find_marker(held_, kClose);
    const bool is_closed = close.begin != std::string_view::npos;
    const std::size_t size = is_closed ? close.begin : held_.size() - possible_beginning(held_, kClose);
    out.thinking = held_.substr(0, size);
    held_.erase(0, is_closed ? size + kClose[0].size() : size);
    if (!is_closed) return out;
    state_ = State::kBetween;
  }
  if (state_ == State::kBetween) {
    held_.erase(0, blanks(held_));
    if (held_.empty()) return out;
    state_ = State::kAnswer;
  }
  out.answer = std::exchange(held_, {});
  return out;
}

ThinkingSplitter::Parts ThinkingSplitter::finish() {
  std::string rest = std::exchange(held_, {});
  return state_ == State::kThinking ? Parts{std::move(rest), {}} : Parts{{}, std::move(rest)};
}

}  // namespace halfbyte::server
