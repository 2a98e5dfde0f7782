// Means with confidence intervals over windows, and quantiles. No LibTorch.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include <halfbyte/accuracy.h>

namespace halfbyte::models {

// Of Student's distribution, two-sided 95 %: 12.7 for 1 degree of freedom, 1.96 for many.
double student95(std::int64_t degrees);

// The mean over tokens of what `value` says of each, with the interval that the means of windows give. All windows have
// as many tokens. Errors: none; `scores` is not empty.
Interval mean_over_windows(std::span<const TokenScore> scores, const std::function<double(const TokenScore&)>& value);

// exp of a mean and its ends.
Interval exponential(const Interval& mean);

// The value below which `share` of them lie: that of rank floor(share * n), n - 1 at most. `values` is reordered.
double quantile(std::span<double> values, double share);

// The perplexity and, `with_original`, the loss that these scores come to.
void summarize(Accuracy& accuracy, bool with_original);

}  // namespace halfbyte::models
