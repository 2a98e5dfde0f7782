#include "convert/training/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace halfbyte::convert {

double rate_of(const FinetuneOptions& options, std::int64_t step, std::int64_t steps) {
  if (step < options.warmup)
    return options.learning_rate * static_cast<double>(step + 1) / static_cast<double>(options.warmup);
  const double done = static_cast<double>(step - options.warmup) /
                      static_cast<double>(std::max<std::int64_t>(1, steps - options.warmup));
  if (options.schedule == Schedule::kLinear) return options.learning_rate * (1 - done);
  if (options.schedule == Schedule::kCosine)
    return options.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * done));
  return options.learning_rate;
}

}  // namespace halfbyte::convert
