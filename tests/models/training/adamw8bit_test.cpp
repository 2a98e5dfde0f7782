// AdamW in 8 bits: its codes, how near it stays to AdamW, what it keeps.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>

#include "models/training/adamw8bit_block.h"
#include "models/training/dynamic_codes.h"
#include "models/training/optimizer.h"
#include "tests/catch.h"
#include "tests/models/training/parameters.h"

namespace halfbyte::training {
namespace {

using Tensors = std::vector<NamedTensor>;

struct Level {
  int bits;
  bool keeps_small;
};

// The nearest of all levels, the lesser of two as near.
std::uint8_t nearest(const DynamicCodes& codes, int bits, float magnitude) {
  int best = 0;
  const auto distance = [&](int code) {
    return std::abs(static_cast<double>(codes.value(static_cast<std::size_t>(code))) - magnitude);
  };
  for (int code = 1; code < 1 << bits; ++code)
    if (distance(code) < distance(best)) best = code;
  return static_cast<std::uint8_t>(best);
}

std::int64_t bytes_of(const Tensors& state) {
  std::int64_t out = 0;
  for (const NamedTensor& one : state) out += static_cast<std::int64_t>(one.tensor.nbytes());
  return out;
}

// The valley x^T D x / 2 with D from 0.1 to 10, by `steps` updates from the same start.
at::Tensor descended(OptimizerKind kind, std::int64_t steps, double decay, std::vector<double>* losses = nullptr) {
  const at::NoGradGuard no_gradients;
  const at::Tensor x = random_tensor({40, 250}, 3), steepness = at::linspace(-1, 1, 10'000).exp().view({40, 250}) * 3;
  const auto optimizer = make_optimizer({{"x", x}}, {.kind = kind, .weight_decay = decay});
  for (std::int64_t step = 0; step < steps; ++step) {
    x.mutable_grad() = x * steepness;
    if (losses) losses->push_back((x * x * steepness).sum().item<double>() / 2);
    optimizer->step(1e-2);
  }
  return x;
}

}  // namespace

TEST_CASE("the levels of 8 bits are ordered, end at 1, and lie closer where numbers are larger", "[optimizer]") {
  for (const Level& level : {Level{7, false}, Level{8, true}}) {
    const DynamicCodes codes(level.bits, level.keeps_small);
    const int count = 1 << level.bits;
    CHECK(codes.value(0) == 0);
    CHECK(codes.value(static_cast<std::size_t>(count - 1)) == 1);
    for (int code = 1; code < count; ++code) {
      const float value = codes.value(static_cast<std::size_t>(code));
      CHECK(value > codes.value(static_cast<std::size_t>(code - 1)));
      CHECK(codes.code(value) == code);
    }
    CHECK(codes.value(1) == Approx(std::pow(10.0, 1 - level.bits)));
  }
}

TEST_CASE("a number gets the level nearest to it", "[optimizer]") {
  for (const Level& level : {Level{7, false}, Level{8, true}}) {
    const DynamicCodes codes(level.bits, level.keeps_small);
    std::int64_t wrong = 0;
    const auto look = [&](float magnitude) {
      const std::uint8_t wanted = nearest(codes, level.bits, magnitude);
      const bool is_kept = level.keeps_small && magnitude > 0 && wanted == 0;
      wrong += codes.code(magnitude) != (is_kept ? 1 : wanted);
    };
    for (float magnitude = 1e-9F; magnitude <= 1; magnitude *= 1.0007F) look(magnitude);
    for (int code = 0; code + 1 < 1 << level.bits; ++code) {  // beside the middle of two
      const auto at = static_cast<std::size_t>(code);
      const float middle = (codes.value(at) + codes.value(at + 1)) / 2;
      look(std::nextafter(std::nextafter(middle, 0.0F), 0.0F));
      look(std::nextafter(std::nextafter(middle, 1.0F), 1.0F));
    }
    CHECK(wrong == 0);
    CHECK(codes.code(0) == 0);
    CHECK(codes.code(1.0001F) == (1 << level.bits) - 1);
    CHECK(codes.code(std::numeric_limits<float>::infinity()) == (1 << level.bits) - 1);
  }
}

TEST_CASE("a block comes back within a part of each number, of either sign, a short one too", "[optimizer]") {
  const at::Tensor random = random_tensor({256}, 8);
  for (const std::size_t count : {std::size_t{256}, std::size_t{100}, std::size_t{1}}) {
    float values[kCodesPerScale] = {}, back[kCodesPerScale] = {};
    std::copy_n(random.const_data_ptr<float>(), count, values);
    values[0] = -1e-5F;
    std::int8_t codes[kCodesPerScale] = {};
    const float scale = encode_signed(values, count, codes);
    float largest = 0;
    for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
    CHECK(scale == largest);
    decode_signed(codes, scale, count, back);
    for (std::size_t i = 0; i < count; ++i) {
      const float size = std::abs(values[i]);
      // Half a step: of 64 in the highest decade, of two in the last but one.
      CHECK(std::abs(back[i] - values[i]) <= (size > scale / 10 ? 0.0071F * scale : 0.75F * size + 0.5e-6F * scale));
      CHECK((back[i] == 0 || std::signbit(back[i]) == std::signbit(values[i])));
    }
  }
}

TEST_CASE("numbers that are no finite ones, or nearly none, do not end in others", "[optimizer]") {
  float values[kCodesPerScale] = {}, back[kCodesPerScale] = {};
  std::uint8_t codes[kCodesPerScale] = {};
  CHECK(encode_unsigned(values, 256, codes) == 0);
  decode_unsigned(codes, 0, 256, back);
  CHECK(back[17] == 0);
  values[3] = std::numeric_limits<float>::denorm_min();
  CHECK(encode_unsigned(values, 256, codes) == 0);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(encode_unsigned(values, 256, codes)));
}

TEST_CASE("AdamW in 8 bits goes where AdamW goes, and as fast", "[optimizer]") {
  for (const double decay : {0.0, 0.1}) {
    std::vector<double> losses, wanted;
    const at::Tensor start = descended(OptimizerKind::kAdamW, 0, decay);
    const at::Tensor found = descended(OptimizerKind::kAdamW8bit, 100, decay, &losses);
    const at::Tensor exact = descended(OptimizerKind::kAdamW, 100, decay, &wanted);
    const double off = (found - exact).norm().item<double>() / (exact - start).norm().item<double>();
    CHECK(off < 0.03);                                                                                    // 0.022
    for (std::size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == Approx(wanted[i]).epsilon(0.02));  // 0.0135
  }
}

TEST_CASE("AdamW in 8 bits keeps two bytes a value, and all of what is small", "[optimizer]") {
  const Tensors parameters = random_parameters({{1000, 500}, {64}, {4095}});
  const auto optimizer = make_optimizer(parameters, {.kind = OptimizerKind::kAdamW8bit});
  const std::int64_t bytes = bytes_of(optimizer->state());
  CHECK(static_cast<double>(bytes) < 500'000 * 2 * 1.02 + 4159 * 8 + 100);
  const auto exact = make_optimizer(parameters, {});
  CHECK(bytes_of(exact->state()) == (500'000 + 4159) * 8 + 24);
}

TEST_CASE("of parameters too small for codes the update is AdamW's", "[optimizer]") {
  const Tensors mine = random_parameters({{63, 65}, {5}}), others = copies_of(mine);
  const auto optimizer = make_optimizer(mine, {.kind = OptimizerKind::kAdamW8bit});
  const auto exact = make_optimizer(others, {});
  for (std::int64_t step = 0; step < 5; ++step) {
    set_gradients(mine, step);
    set_gradients(others, step);
    optimizer->step(1e-2);
    exact->step(1e-2);
  }
  CHECK(are_same_bits(mine, others));
}

}  // namespace halfbyte::training
