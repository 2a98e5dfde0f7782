// Which of several runs that share a work takes its next piece. All see the pieces in the same order, so all know it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace halfbyte::convert::calibrate {

class ShareLoads {
 public:
  explicit ShareLoads(int runs) : loads_(static_cast<std::size_t>(runs)) {}

  int count() const noexcept { return static_cast<int>(loads_.size()); }
  // The least loaded one so far, which has so much more from here on.
  int give_to_least(double load) {
    const auto found = std::ranges::min_element(loads_);
    *found += load;
    return static_cast<int>(found - loads_.begin());
  }
  void add(int run, double load) { loads_[static_cast<std::size_t>(run)] += load; }

 private:
  std::vector<double> loads_;
};

}  // namespace halfbyte::convert::calibrate
