// What a tensor is for.
#pragma once

#include <cstdint>
#include <string_view>

namespace halfbyte::models {

// Only kLinear is quantised unless the user asks for more. A router chooses experts: small, and kept, as a convolution
// over few tokens is, and what says how fast a state decays. Stacks that hold columns first are no rows to quantise. A
// correction is large beside what it tells experts apart by, and keeps its dtype everywhere.
enum class Role : std::uint8_t {
  kLinear,
  kEmbedding,
  kHead,
  kNorm,
  kBias,
  kBuffer,
  kRouter,
  kCorrection,
  kConvolution,
  kDecay,
  kSink,
  kScale,
  kTransposed,
  kUnknown
};

std::string_view name(Role role) noexcept;  // "linear", "embedding", ...

}  // namespace halfbyte::models
