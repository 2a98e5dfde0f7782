// How the tokens of a text are divided into passes, so that the text does not depend on it. Needs no LibTorch.
#pragma once

#include <cstdint>

#include <halfbyte/linear.h>

#include "quant/rows_alike.h"

namespace halfbyte::models {

// Prompt tokens a pass: bounds the memory of activations.
inline constexpr std::int64_t kPrefillTokens = 512;

// Of a prompt that is read in passes of any size.
constexpr quant::RowsKind kind_of_prompt(std::int64_t tokens) noexcept {
  return tokens > quant::kDirectRows ? quant::RowsKind::kMany : quant::RowsKind::kFew;
}

}  // namespace halfbyte::models
