// Scales in eight bits, as bitsandbytes nests them. Source: bitsandbytes, functional.py, create_dynamic_map and
// QuantState.
#include <algorithm>
#include <cmath>

#include <halfbyte/quantize.h>

namespace halfbyte::quant {
namespace {

constexpr int kDecades = 7;

// Decade d has 2^d steps from 0.1 to 1 times 10^(d - 6); the values are the middles of the steps, with either sign.
std::array<float, 256> make_codebook() {
  std::array<float, 256> out{};
  std::size_t n = 0;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int steps = 1 << decade;
    const double unit = std::pow(10.0, decade - (kDecades - 1));
    for (int i = 0; i < steps; ++i) {
      const double middle = 0.1 + 0.9 * (i + 0.5) / steps;
      out[n++] = static_cast<float>(unit * middle);
      out[n++] = static_cast<float>(-unit * middle);
    }
  }
  out[n++] = 0.0f;
  out[n++] = 1.0f;
  std::ranges::sort(out);
  return out;
}

}  // namespace

const std::array<float, 256>& nested_codebook() noexcept {
  static const std::array<float, 256> codebook = make_codebook();
  return codebook;
}

void expand_nested(const std::uint8_t* bytes, const float* codebook, const float* nested_scales, float offset,
                   std::int64_t begin, std::int64_t count, float* scales) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    const float scale = codebook[bytes[i]] * nested_scales[(begin + i) / kNestedBlock];
    scales[i] = scale + offset;
  }
}

}  // namespace halfbyte::quant
