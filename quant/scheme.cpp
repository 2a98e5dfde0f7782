#include <halfbyte/scheme.h>

#include <algorithm>

namespace halfbyte {
namespace {

// Source: bitsandbytes, functional.py, get_4bit_type("nf4"): quantiles of a normal distribution.
constexpr Codebook kNf4 = {-1.0f,
                           -0.6961928009986877f,
                           -0.5250730514526367f,
                           -0.39491748809814453f,
                           -0.28444138169288635f,
                           -0.18477343022823334f,
                           -0.09105003625154495f,
                           0.0f,
                           0.07958029955625534f,
                           0.16093020141124725f,
                           0.24611230194568634f,
                           0.33791524171829224f,
                           0.44070982933044434f,
                           0.5626170039176941f,
                           0.7229568362236023f,
                           1.0f};
// Source: bitsandbytes, functional.py, get_4bit_type("fp4"): sign, two bits of exponent, one of mantissa, over 12.
constexpr Codebook kFp4 = {0.0f, 0.0625f / 12,  8.0f / 12,  1.0f,  4.0f / 12,  0.5f,  2.0f / 12,  0.25f,
                           0.0f, -0.0625f / 12, -8.0f / 12, -1.0f, -4.0f / 12, -0.5f, -2.0f / 12, -0.25f};
// Source: OCP Microscaling Formats (MX) specification 1.0, table 5: FP4 E2M1.
constexpr Codebook kE2m1 = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                            -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
// Source: ggml-org/ggml, src/ggml-common.h, kvalues_iq4nl.
constexpr Codebook kIq4Nl = {-127.0f, -104.0f, -83.0f, -65.0f, -49.0f, -35.0f, -22.0f, -10.0f,
                             1.0f,    13.0f,   25.0f,  38.0f,  53.0f,  69.0f,  89.0f,  113.0f};

constexpr auto kSchemes = std::to_array<Scheme>({
    {SchemeId::kSymInt4, "sym_int4", 4, Layout::kPackQuantized, -8, 7, 8, false, nullptr, true},
    {SchemeId::kSymInt8, "sym_int8", 8, Layout::kPackQuantized, -128, 127, 128, false, nullptr, true},
    {SchemeId::kAsymInt4, "asym_int4", 4, Layout::kPackQuantized, -8, 7, 8, true, nullptr, true},
    {SchemeId::kNf4, "nf4", 4, Layout::kBitsandbytes, 0, 0, 0, false, &kNf4, true},
    {SchemeId::kFp4, "fp4", 4, Layout::kBitsandbytes, 0, 0, 0, false, &kFp4, true},
    {SchemeId::kFp4E2m1, "fp4_e2m1", 4, Layout::kPackQuantized, 0, 0, 0, false, &kE2m1, false},
    {SchemeId::kAffineInt4, "affine_int4", 4, Layout::kPackQuantized, 0, 15, 0, false, nullptr, false, true},
    {SchemeId::kIq4Nl, "iq4_nl", 4, Layout::kPackQuantized, 0, 0, 0, false, &kIq4Nl, false},
});

}  // namespace

std::span<const Scheme> schemes() noexcept { return kSchemes; }
const Scheme& scheme(SchemeId id) noexcept { return *std::ranges::find(kSchemes, id, &Scheme::id); }

const Scheme* find_scheme(std::string_view name) noexcept {
  const auto row = std::ranges::find(kSchemes, name, &Scheme::name);
  return row == kSchemes.end() ? nullptr : &*row;
}

bool has_code_of_zero(const Scheme& scheme) noexcept {
  return !scheme.codebook || std::ranges::count(*scheme.codebook, 0.0f) > 0;
}

std::span<const std::int64_t> group_sizes(const Scheme& scheme) noexcept {
  const std::span<const std::int64_t> all = kGroupSizes;
  return scheme.layout == Layout::kBitsandbytes ? all.first(3) : all;
}

}  // namespace halfbyte
