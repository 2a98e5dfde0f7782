// Which of a model's weights holds what is no number, for who has met one.
#pragma once

#include <cstdint>
#include <string>

#include "models/cpu/fused_weights.h"

namespace halfbyte::models::cpu {

// Precondition: a weight dtype.
std::int64_t count_not_finite(const FusedValues& values) noexcept;

// Throws the error for a weight that holds what is no number: kCorrupt.
[[noreturn]] void fail_damaged(const std::string& name, std::int64_t count, std::int64_t all);

// Errors: kCorrupt naming the first tensor that holds NaN or infinite values, and how many. Nothing: none does.
void check_finite(const FusedWeights& weights);

}  // namespace halfbyte::models::cpu
