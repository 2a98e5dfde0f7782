// What a tensor is for.
#pragma once

#include <cstdint>
#include <string_view>

namespace halfbyte::models {

// Only kLinear is quantised unless the user asks for more. A router chooses experts: small, and kept, as a convolution
// over few tokens is.
enum class Role : std::uint8_t { kLinear, kEmbedding, kHead, kNorm, kBias, kBuffer, kRouter, kConvolution, kUnknown };

std::string_view name(Role role) noexcept;  // "linear", "embedding", ...

}  // namespace halfbyte::models
