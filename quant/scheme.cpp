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

// Lloyd's iteration from iq4_nl's, over gaussian groups that choose between the book and it shifted, then rounded. Of
// 32 weights and four shifts: steps from 3 to 10 were tried, 7 leaves the least squared error, 4.5 % less than two
// shifts and multiples twice as fine. A shift of 14 has a value of 1; none has 0, which no sign goes with.
constexpr Codebook kHb4 = {-127.0f, -105.0f, -83.0f, -66.0f, -51.0f, -38.0f, -26.0f, -13.0f,
                           -2.0f,   10.0f,   21.0f,  34.0f,  48.0f,  63.0f,  81.0f,  117.0f};
// Of 16 and two: 2.8 % less than iq4_nl's shifted by 4.
constexpr Codebook kHb4Fine = {-127.0f, -104.0f, -83.0f, -65.0f, -49.0f, -35.0f, -22.0f, -10.0f,
                               1.0f,    13.0f,   25.0f,  38.0f,  51.0f,  66.0f,  85.0f,  118.0f};

constexpr auto kFloatScales = std::to_array<Dtype>({Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32});
constexpr auto kByteScales = std::to_array<Dtype>({Dtype::kInt8});
constexpr auto kBitScales = std::to_array<Dtype>({Dtype::kUint8});
constexpr auto kBitsandbytesScales = std::to_array<Dtype>({Dtype::kFloat32, Dtype::kUint8});

// Source: compressed-tensors, compressors/pack_quantized/base.py.
constexpr PartRule kCodes{Part::kCodes, "_packed", Dtype::kInt32, PartShape::kWords};
constexpr PartRule kScale{Part::kScale, "_scale", {}, PartShape::kGroups};
constexpr PartRule kZeroPoint{Part::kZeroPoint, "_zero_point", Dtype::kInt32, PartShape::kZeroPointWords};
constexpr PartRule kShape{Part::kShape, "_shape", Dtype::kInt64, PartShape::kRank, Presence::kExpected};
// Of halfbyte alone.
constexpr PartRule kOffset{Part::kOffset, "_offset", {}, PartShape::kGroups};
constexpr PartRule kScaleBits{Part::kScale, "_scale", {}, PartShape::kScaleBits};
constexpr PartRule kRowScale{Part::kRowScale, "_row_scale", Dtype::kBfloat16, PartShape::kRows};
constexpr PartRule kColumnOrder{Part::kColumnOrder, "_column_order", Dtype::kInt32, PartShape::kColumns,
                                Presence::kWhereRecorded};
constexpr auto kPlainParts = std::to_array<PartRule>({kCodes, kScale, kShape, kColumnOrder});
constexpr auto kZeroPointParts = std::to_array<PartRule>({kCodes, kScale, kZeroPoint, kShape, kColumnOrder});
constexpr auto kOffsetParts = std::to_array<PartRule>({kCodes, kScale, kShape, kOffset, kColumnOrder});
constexpr auto kRowScaleParts = std::to_array<PartRule>({kCodes, kScale, kShape, kRowScale, kColumnOrder});
constexpr auto kScaleBitsParts = std::to_array<PartRule>({kCodes, kScaleBits, kShape, kRowScale, kColumnOrder});

// Source: bitsandbytes, functional.py, QuantState.as_dict.
constexpr auto bitsandbytes_parts(std::string_view state) {
  constexpr Presence kNested = Presence::kWithNestedScales;
  return std::to_array<PartRule>(
      {{Part::kCodes, "", Dtype::kUint8, PartShape::kBytes},
       {Part::kScale, ".absmax", {}, PartShape::kFlatGroups},
       {Part::kCodebook, ".quant_map", Dtype::kFloat32, PartShape::kLevels},
       {Part::kNestedScale, ".nested_absmax", Dtype::kFloat32, PartShape::kNestedBlocks, kNested},
       {Part::kNestedCodebook, ".nested_quant_map", Dtype::kFloat32, PartShape::kNestedLevels, kNested},
       {Part::kState, state, Dtype::kUint8, PartShape::kText}});
}
constexpr auto kNf4Parts = bitsandbytes_parts(".quant_state.bitsandbytes__nf4");
constexpr auto kFp4Parts = bitsandbytes_parts(".quant_state.bitsandbytes__fp4");

constexpr auto kSchemes = std::to_array<Scheme>({
    {.id = SchemeId::kSymInt4,
     .name = "sym_int4",
     .bits = 4,
     .layout = Layout::kPackQuantized,
     .decode = Decode::kSymmetric,
     .code_min = -8,
     .code_max = 7,
     .code_offset = 8,
     .scale_dtypes = kFloatScales,
     .parts = kPlainParts,
     .has_foreign_readers = true},
    {.id = SchemeId::kSymInt8,
     .name = "sym_int8",
     .bits = 8,
     .layout = Layout::kPackQuantized,
     .decode = Decode::kSymmetric,
     .code_min = -128,
     .code_max = 127,
     .code_offset = 128,
     .scale_dtypes = kFloatScales,
     .parts = kPlainParts,
     .has_foreign_readers = true},
    {.id = SchemeId::kAsymInt4,
     .name = "asym_int4",
     .bits = 4,
     .layout = Layout::kPackQuantized,
     .decode = Decode::kZeroPoint,
     .code_min = -8,
     .code_max = 7,
     .code_offset = 8,
     .scale_dtypes = kFloatScales,
     .parts = kZeroPointParts,
     .has_foreign_readers = true},
    {.id = SchemeId::kNf4,
     .name = "nf4",
     .bits = 4,
     .layout = Layout::kBitsandbytes,
     .decode = Decode::kCodebook,
     .codebook = &kNf4,
     .scale_dtypes = kBitsandbytesScales,
     .parts = kNf4Parts,
     .has_foreign_readers = true},
    {.id = SchemeId::kFp4,
     .name = "fp4",
     .bits = 4,
     .layout = Layout::kBitsandbytes,
     .decode = Decode::kCodebook,
     .codebook = &kFp4,
     .scale_dtypes = kBitsandbytesScales,
     .parts = kFp4Parts,
     .has_foreign_readers = true},
    {.id = SchemeId::kFp4E2m1,
     .name = "fp4_e2m1",
     .bits = 4,
     .layout = Layout::kPackQuantized,
     .decode = Decode::kCodebook,
     .codebook = &kE2m1,
     .scale_dtypes = kFloatScales,
     .parts = kPlainParts},
    {.id = SchemeId::kAffineInt4,
     .name = "affine_int4",
     .bits = 4,
     .layout = Layout::kPackQuantized,
     .decode = Decode::kOffset,
     .code_min = 0,
     .code_max = 15,
     .scale_dtypes = kFloatScales,
     .parts = kOffsetParts},
    {.id = SchemeId::kIq4Nl,
     .name = "iq4_nl",
     .bits = 4,
     .layout = Layout::kPackQuantized,
     .decode = Decode::kCodebook,
     .codebook = &kIq4Nl,
     .scale_dtypes = kFloatScales,
     .parts = kPlainParts},
    {.id = SchemeId::kHb4,
     .name = "hb4",
     .bits = 4,
     .layout = Layout::kPackQuantized,
     .decode = Decode::kCodebook,
     .codebook = &kHb4,
     .shift = 7,
     .shift_bits = 2,
     .scale_bits = 8,
     .default_group = 32,
     .scale_dtypes = kByteScales,
     .parts = kRowScaleParts},
    {.id = SchemeId::kHb4Fine,
     .name = "hb4_fine",
     .bits = 4,
     .layout = Layout::kPackQuantized,
     .decode = Decode::kCodebook,
     .codebook = &kHb4Fine,
     .shift = 5,
     .shift_bits = 1,
     .scale_bits = 7,
     .default_group = 16,
     .largest_group = 16,
     .scale_dtypes = kBitScales,
     .parts = kScaleBitsParts},
});

}  // namespace
std::span<const Scheme> schemes() noexcept { return kSchemes; }
const Scheme& scheme(SchemeId id) noexcept { return *std::ranges::find(kSchemes, id, &Scheme::id); }

const Scheme* find_scheme(std::string_view name) noexcept {
  const auto row = std::ranges::find(schemes(), name, &Scheme::name);
  return row == schemes().end() ? nullptr : &*row;
}

const PartRule* find_part(const Scheme& scheme, Part part) noexcept {
  const auto rule = std::ranges::find(scheme.parts, part, &PartRule::part);
  return rule == scheme.parts.end() ? nullptr : &*rule;
}

std::int64_t rows_a_unit(const Scheme& scheme) noexcept {
  std::int64_t most = 1;
  for (const PartRule& rule : scheme.parts) most = std::max(most, rows_a_unit(rule.shape));
  return most;
}

bool has_scale_dtype(const Scheme& scheme, Dtype dtype) noexcept {
  return std::ranges::find(scheme.scale_dtypes, dtype) != scheme.scale_dtypes.end();
}

Dtype scale_dtype_for(const Scheme& scheme, Dtype weights) noexcept {
  const Dtype wanted = weights == Dtype::kFloat32 ? Dtype::kFloat16 : weights;
  return has_scale_dtype(scheme, wanted) ? wanted : scheme.scale_dtypes.front();
}

float largest_code(const Scheme& scheme) noexcept {
  if (is_asymmetric(scheme)) return static_cast<float>(scheme.code_max - scheme.code_min);
  if (scheme.decode == Decode::kSymmetric) return static_cast<float>(std::max(-scheme.code_min, scheme.code_max));
  const auto [low, high] = std::ranges::minmax(*scheme.codebook);
  return std::max(-low, high + static_cast<float>(largest_shift(scheme) * scheme.shift));
}

bool has_code_of_zero(const Scheme& scheme) noexcept {
  return scheme.decode != Decode::kCodebook || std::ranges::count(*scheme.codebook, 0.0f) > 0;
}

std::span<const std::int64_t> group_sizes(const Scheme& scheme) noexcept {
  const std::span<const std::int64_t> all = kGroupSizes;
  if (scheme.layout == Layout::kBitsandbytes) return all.first(3);
  return all.subspan(static_cast<std::size_t>(std::ranges::find(all, scheme.largest_group) - all.begin()));
}

std::string packed_description(const Scheme& scheme, std::int64_t in_features, std::int64_t group_size) {
  if (group_size == in_features) return std::string(scheme.name) + " per channel";
  return std::string(scheme.name) + " g" + std::to_string(group_size);
}

}  // namespace halfbyte
