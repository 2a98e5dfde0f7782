#include "models/chat/jinja/text.h"

#include <algorithm>
#include <utility>

namespace halfbyte::models::jinja {

Text::Text(std::string bytes, Origin origin) : bytes_(std::move(bytes)) {
  if (origin == Origin::kGiven) add_given(0, bytes_.size());
}

void Text::add_given(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!given_.empty() && given_.back().end == begin) {
    given_.back().end = end;
  } else {
    given_.push_back({begin, end});
  }
}

void Text::append(std::string_view bytes, Origin origin) {
  const std::size_t at = bytes_.size();
  bytes_ += bytes;
  if (origin == Origin::kGiven) add_given(at, bytes_.size());
}

std::vector<Text::Range>::const_iterator Text::first_ending_after(std::size_t byte) const noexcept {
  return std::ranges::upper_bound(given_, byte, {}, &Range::end);
}

void Text::append(const Text& other, std::size_t begin, std::size_t end) {
  const std::size_t at = bytes_.size();
  const std::size_t last = other.given_.size();  // of what is there now: `other` may be this text
  const auto first = static_cast<std::size_t>(other.first_ending_after(begin) - other.given_.begin());
  bytes_.append(other.bytes_, begin, end - begin);
  for (std::size_t i = first; i < last && other.given_[i].begin < end; ++i) {
    const Range range = other.given_[i];
    add_given(at + std::max(range.begin, begin) - begin, at + std::min(range.end, end) - begin);
  }
}

Text Text::part(std::size_t begin, std::size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

Origin Text::origin_at(std::size_t byte) const noexcept {
  const auto range = first_ending_after(byte);
  return range != given_.end() && range->begin <= byte ? Origin::kGiven : Origin::kTemplate;
}

std::vector<Run> Text::runs() const {
  std::vector<Run> out;
  std::size_t done = 0;
  for (const Range& range : given_) {
    if (done < range.begin) out.push_back({done, range.begin, Origin::kTemplate});
    out.push_back({range.begin, range.end, Origin::kGiven});
    done = range.end;
  }
  if (done < bytes_.size()) out.push_back({done, bytes_.size(), Origin::kTemplate});
  return out;
}

}  // namespace halfbyte::models::jinja
