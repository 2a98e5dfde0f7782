#include "convert/calibrate/windows.h"

#include <algorithm>

namespace halfbyte::convert::calibrate {

std::vector<models::TokenIds> Windows::cut() const {
  std::vector<models::TokenIds> out;
  const models::TokenIds& prefix = options_.prefix;
  const std::int64_t count = options_.tokens / options_.context;
  for (auto next = ids_.begin(); std::ssize(out) < count;) {
    const bool has_prefix =
        std::equal(prefix.begin(), prefix.end(), next, next + std::min(std::ssize(prefix), ids_.end() - next));
    models::TokenIds window = has_prefix ? models::TokenIds() : prefix;
    const std::int64_t run = options_.context - std::ssize(window);
    if (run <= 0 || ids_.end() - next < run) break;
    window.insert(window.end(), next, next + run);
    next += run;
    out.push_back(std::move(window));
  }
  return out;
}

}  // namespace halfbyte::convert::calibrate
