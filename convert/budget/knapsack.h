// Which choice of each item, so that all together stay within a budget and lose least: the multiple-choice knapsack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace halfbyte::convert::budget {

struct Choice {
  std::uint64_t bytes;
  double loss;
};
using Item = std::vector<Choice>;  // none is empty

// The least that one choice of each item needs.
std::uint64_t least_bytes(std::span<const Item> items);

// An index into each item; nothing: even the least need more. The sum of losses is the smallest that there is, as long
// as few enough partial sums could still lead to it; beyond, close to it. The same input gives the same picks.
std::optional<std::vector<std::size_t>> pick(std::span<const Item> items, std::uint64_t budget);

}  // namespace halfbyte::convert::budget
