#include "models/tokenizers/stop_texts.h"

#include <algorithm>
#include <utility>

namespace halfbyte::models {
namespace {

// Where the stop text that is complete first begins; of those that end together, the longest. npos: there is none.
std::size_t first_stop(const std::string& text, std::size_t from, const std::vector<std::string>& stops) {
  std::size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stops) {
    const std::size_t at = text.find(stop, from);
    if (at == std::string::npos || std::pair(at + stop.size(), at) >= std::pair(end, begin)) continue;
    begin = at;
    end = at + stop.size();
  }
  return begin;
}

// Bytes at the end of `text` that `stop` may begin with; less than all of `stop`.
std::size_t possible_beginning(const std::string& text, const std::string& stop) {
  std::size_t size = std::min(text.size(), stop.size() - 1);
  while (size > 0 && text.compare(text.size() - size, size, stop, 0, size) != 0) --size;
  return size;
}

}  // namespace

std::string StopTexts::push(const std::string& piece) {
  if (is_found_) return "";
  held_ += piece;
  const std::size_t stop = first_stop(held_, 0, texts_);
  if (stop != std::string::npos) {
    is_found_ = true;
    return std::exchange(held_, "").substr(0, stop);
  }
  std::size_t kept = 0;
  for (const std::string& text : texts_) kept = std::max(kept, possible_beginning(held_, text));
  std::string shown = held_.substr(0, held_.size() - kept);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopTexts::finish() { return std::exchange(held_, ""); }

std::string before_stop_text(const std::string& text, std::size_t begin, const std::vector<std::string>& stops) {
  return text.substr(0, first_stop(text, std::min(begin, text.size()), stops));
}

}  // namespace halfbyte::models
