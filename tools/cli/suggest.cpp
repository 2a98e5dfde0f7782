#include "tools/cli/suggest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace halfbyte::cli {
namespace {

// Levenshtein's distance, in which two neighbours swapped count as one slip (optimal string alignment).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), current(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      current[j] = std::min({last[j] + 1, current[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) current[j] = std::min(current[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, current);
  }
  return last[b.size()];
}

// In a word of one or two letters, a slip leaves nothing to recognise.
std::size_t slips_allowed(std::size_t length) {
  return length <= 2 ? 0 : length <= 4 ? 1 : std::max<std::size_t>(2, length / 3);
}

}  // namespace

std::string did_you_mean(std::string_view typed, std::span<const std::string> known) {
  const std::string* best = nullptr;
  std::size_t best_distance = slips_allowed(typed.size()) + 1;
  for (const std::string& word : known) {
    const bool is_start = typed.size() >= 3 && word.starts_with(typed);
    const std::size_t slips = is_start ? 1 : distance(typed, word);
    if (slips < best_distance && slips < word.size()) {
      best_distance = slips;
      best = &word;
    }
  }
  return best != nullptr ? "; did you mean '" + *best + "'?" : "";
}

}  // namespace halfbyte::cli
