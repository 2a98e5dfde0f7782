// Quantisation of tiles in portable C++: what every other level must equal.
#include <cmath>
#include <cstring>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

constexpr std::size_t kElementBytes[kFloatCount] = {4, 2, 2};
constexpr float kInfinity = __builtin_inff();

bool load_tile(Float from, const Byte* source, std::size_t stride, std::size_t lanes, std::size_t n,
               float* tile) noexcept {
  bool is_finite = true;
  const std::size_t padded = (n + kTileUnit - 1) / kTileUnit * kTileUnit;
  std::memset(tile, 0, padded * kLanes * sizeof(float));
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    for (std::size_t k = 0; k < n; ++k) {
      float value;
      kRef.load(from, source + lane * stride + k * kElementBytes[from], 1, &value);
      is_finite &= std::isfinite(value);
      tile[k * kLanes + lane] = value;
    }
  }
  return is_finite;
}

void extremes(const float* tile, std::size_t n, float* low, float* high) noexcept {
  for (int lane = 0; lane < kLanes; ++lane) low[lane] = high[lane] = tile[lane];
  for (std::size_t k = 1; k < n; ++k) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float value = tile[k * kLanes + lane];
      low[lane] = value < low[lane] ? value : low[lane];
      high[lane] = value > high[lane] ? value : high[lane];
    }
  }
}

// Nearest integer, ties to even, of a value within +-2^22: beyond 1.5 * 2^23 a float has no fraction bits.
float round_code(float value, float low, float high) noexcept {
  constexpr float kNoFraction = 12582912.0f;
  value = value > low ? value : low;
  value = value < high ? value : high;
  return (value + kNoFraction) - kNoFraction;
}

std::size_t level_of(float value, const Levels& levels) noexcept {
  std::size_t level = 0;
  while (value > levels.middle[level]) ++level;
  return level;
}

// `value` in units of the scale, less the shift of levels.
float placed(float value, float inverse, float low, const Coding& coding) noexcept {
  return coding.levels ? std::fma(value, inverse, -low) : value * inverse;
}

float value_of_code(float value, float low, const Coding& coding) noexcept {
  return coding.levels ? coding.levels->value[level_of(value, *coding.levels)]
                       : round_code(value, low, low + coding.span);
}

void measure(const Weighed& tile, std::size_t n, const float* inverse, const float* low, std::size_t count,
             const Coding& coding, Errors out) noexcept {
  for (std::size_t c = 0; c < count; ++c) {
    float squared[kLanes] = {}, slope[kLanes] = {}, codes[kLanes] = {};
    for (std::size_t k = 0; k < n; ++k) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const float t =
            placed(tile.values[k * kLanes + lane], inverse[c * kLanes + lane], low[c * kLanes + lane], coding);
        const float q = value_of_code(t, low[c * kLanes + lane], coding);
        const float importance = tile.importance ? tile.importance[k * kLanes + lane] : 1.0f;
        const float difference = t - q, counted = difference * importance;
        squared[lane] += counted * difference;
        slope[lane] += counted * q;
        codes[lane] += q * importance * q;
      }
    }
    std::memcpy(out.squared + c * kLanes, squared, sizeof squared);
    if (!out.slope) continue;
    std::memcpy(out.slope + c * kLanes, slope, sizeof slope);
    std::memcpy(out.codes + c * kLanes, codes, sizeof codes);
  }
}

void round_scales(Float to, float largest, std::size_t count, float* scale, float* inverse) noexcept {
  for (std::size_t i = 0; i < count * kLanes; ++i) {
    Byte stored[4];
    const float clamped = std::fmax(std::fmin(scale[i], largest), -largest);
    kRef.store(to, &clamped, 1, stored);
    kRef.load(to, stored, 1, &scale[i]);
    inverse[i] = 1.0f / scale[i];
    if (!std::isfinite(inverse[i])) scale[i] = inverse[i] = 0.0f;
  }
}

// Errors come in units of each candidate's scale; times (scale / base scale)^2 they compare, and cannot overflow.
// With d = t - q, these codes at the scale r * s have the error sum (t - r q)^2 = sum d^2 - 2 (r - 1) sum d q + (r -
// 1)^2 sum q^2: least at r = 1 + sum d q / sum q^2, where it has fallen by (sum d q)^2 / sum q^2.
void choose(const Candidates& candidates, std::size_t count, const float* base_inverse, Best best,
            Refined refined) noexcept {
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    float refined_error = kInfinity;
    refined.scale[lane] = 0.0f;
    refined.low[lane] = 0.0f;
    for (std::size_t i = lane; i < count * kLanes; i += kLanes) {
      const float scale = candidates.scale[i], squared = candidates.errors.squared[i];
      const float slope = candidates.errors.slope[i], codes = candidates.errors.codes[i];
      const float ratio = scale * base_inverse[lane];
      const float unit = candidates.inverse[i] != 0.0f ? ratio * ratio : kInfinity;
      const float step = slope / (codes > 0.0f ? codes : 1.0f);  // no codes, no slope
      const float error = squared * unit;
      const float fitted = (squared - step * slope) * unit;
      if (error < best.error[lane]) {
        best.scale[lane] = scale;
        best.inverse[lane] = candidates.inverse[i];
        best.low[lane] = candidates.low[i];
        best.error[lane] = error;
      }
      if (fitted < refined_error) {
        refined.scale[lane] = scale * (1.0f + step);
        refined.low[lane] = candidates.low[i];
        refined_error = fitted;
      }
    }
  }
}

void round_multiples(const MultiplesOf& row, std::size_t count, float* multiple, const float* low,
                     float* inverse) noexcept {
  constexpr float kLargestFinite = 0x1.fffffep127f;
  for (std::size_t i = 0; i < count * kLanes; ++i) {
    const float nearest = round_code(multiple[i], row.least, row.most);
    multiple[i] = nearest != 0.0f ? nearest : multiple[i] < 0.0f ? -1.0f : 1.0f;
    const float scale = multiple[i] * row.row_scale, reciprocal = 1.0f / scale;
    const float end = std::fmax(-row.low, row.high + low[i]);
    const bool is_usable = std::fabs(reciprocal) <= kLargestFinite && end * std::fabs(scale) <= kLargestFinite;
    inverse[i] = is_usable ? reciprocal : 0.0f;
  }
}

// One lane's best candidate.
struct Chosen {
  float scale, inverse, low, error;
};

Chosen chosen(const Best& best, std::size_t lane) noexcept {
  return {best.scale[lane], best.inverse[lane], best.low[lane], best.error[lane]};
}

void put(const Chosen& chosen, const Best& best, std::size_t lane) noexcept {
  best.scale[lane] = chosen.scale;
  best.inverse[lane] = chosen.inverse;
  best.low[lane] = chosen.low;
  best.error[lane] = chosen.error;
}

Chosen best_of_run(const Candidates& candidates, std::size_t begin, std::size_t end) noexcept {
  Chosen best = {0.0f, 0.0f, 0.0f, kInfinity};
  for (std::size_t i = begin; i < end; i += kLanes) {
    const float scale = candidates.scale[i], inverse = candidates.inverse[i];
    const float error = candidates.errors.squared[i] * (inverse != 0.0f ? scale * scale : kInfinity);
    if (error < best.error) best = {scale, inverse, candidates.low[i], error};
  }
  return best;
}

void choose_two(const Candidates& candidates, std::size_t runs, std::size_t count, Best first, Best second) noexcept {
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    Chosen one = chosen(first, lane), two = chosen(second, lane);
    for (std::size_t run = 0; run < runs; ++run) {
      const Chosen best = best_of_run(candidates, run * count * kLanes + lane, (run + 1) * count * kLanes);
      if (best.error < one.error) {
        two = one;
        one = best;
      } else if (best.error < two.error) {
        two = best;
      }
    }
    put(one, first, lane);
    put(two, second, lane);
  }
}

// Sums of a tile as they grow. Shapes: (kLanes).
struct EncodedSums {
  float squares[kLanes] = {}, squared[kLanes] = {}, max_abs[kLanes] = {};
};

std::uint32_t code_of(float t, float q, float low, const Coding& coding) noexcept {
  if (coding.levels) return coding.levels->code[level_of(t, *coding.levels)];
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(q - low));
}

// Code of one weight a lane, offset to be unsigned.
void encode_element(const float* weights, const float* inverse, const float* low, const Coding& coding,
                    EncodedSums& sums, std::uint32_t* codes) noexcept {
  for (int lane = 0; lane < kLanes; ++lane) {
    const float whole = weights[lane] * inverse[lane], t = placed(weights[lane], inverse[lane], low[lane], coding);
    const float q = value_of_code(t, low[lane], coding);
    const float difference = t - q, magnitude = std::fabs(difference);
    sums.squares[lane] += whole * whole;
    sums.squared[lane] += difference * difference;
    sums.max_abs[lane] = magnitude > sums.max_abs[lane] ? magnitude : sums.max_abs[lane];
    codes[lane] = code_of(t, q, low[lane], coding);
  }
}

void encode(const float* tile, std::size_t n, const float* inverse, const float* low, const Coding& coding,
            std::uint32_t* words, Encoded out) noexcept {
  EncodedSums sums;
  for (std::size_t k = 0; k < n;) {
    std::uint32_t word[kLanes] = {}, codes[kLanes];
    for (int j = 0; j < 32 / coding.bits; ++j, ++k) {
      encode_element(tile + k * kLanes, inverse, low, coding, sums, codes);
      for (int lane = 0; lane < kLanes; ++lane) word[lane] |= codes[lane] << (j ^ coding.flip) * coding.bits;
    }
    std::memcpy(words, word, sizeof word);
    words += kLanes;
  }
  std::memcpy(out.squares, sums.squares, sizeof sums.squares);
  std::memcpy(out.squared, sums.squared, sizeof sums.squared);
  std::memcpy(out.max_abs, sums.max_abs, sizeof sums.max_abs);
}

}  // namespace

const QuantizeTable kRefQuantize = {
    .load_tile = load_tile,
    .extremes = extremes,
    .measure = measure,
    .round_scales = round_scales,
    .choose = choose,
    .round_multiples = round_multiples,
    .choose_two = choose_two,
    .encode = encode,
};

}  // namespace halfbyte::quant::kernels
