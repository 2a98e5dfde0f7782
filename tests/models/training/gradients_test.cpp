// What happens to gradients before a step: norms, clipping, the scale of float16's loss; and rounding after one.
#include "models/training/gradients.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <halfbyte/error.h>

#include "models/training/rounding.h"
#include "tests/catch.h"
#include "tests/models/training/parameters.h"

namespace halfbyte::training {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<at::Tensor> parameters() {
  const auto named = random_parameters({{50, 3000}, {7}, {1}, {200}, {33}});
  set_gradients(named, 1);  // the fifth has none
  return tensors_of(named);
}

double norm_of(const std::vector<at::Tensor>& parameters) {
  double sum = 0;
  for (const at::Tensor& one : parameters)
    if (one.grad().defined()) sum += one.grad().to(at::kDouble).square().sum().item<double>();
  return std::sqrt(sum);
}

std::vector<at::Tensor> one_with(float gradient) {
  const at::Tensor out = at::zeros({3});
  out.mutable_grad() = at::full({3}, gradient);
  return {out};
}

float bfloat16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

}  // namespace

TEST_CASE("gradients above a norm are scaled to it together, others are left", "[optimizer]") {
  const std::vector<at::Tensor> all = parameters();
  const double norm = norm_of(all);
  std::vector<at::Tensor> before;
  for (const at::Tensor& one : all) before.push_back(one.grad().defined() ? one.grad().clone() : at::Tensor());
  for (const double largest : {kInfinity, norm * 1.01}) {
    CHECK(clip_norm(all, largest) == Approx(norm).epsilon(1e-12));
    for (std::size_t i = 0; i < all.size(); ++i)
      CHECK((before[i].defined() ? are_same_bits(all[i].grad(), before[i]) : !all[i].grad().defined()));
  }
  CHECK(clip_norm(all, norm / 4) == Approx(norm).epsilon(1e-12));
  CHECK(norm_of(all) == Approx(norm / 4).epsilon(1e-5));
  CHECK((all[0].grad() * 4).allclose(before[0], 1e-4));
  CHECK(clip_norm({}, 1) == 0);
  for (const double wrong : {0.0, -1.0, std::nan("")}) CHECK_THROWS_AS(clip_norm(all, wrong), Error);
}

TEST_CASE("a norm does not depend on threads, and is not lost at the ends of float32", "[optimizer]") {
  const std::vector<at::Tensor> all = parameters();
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const double alone = clip_norm(all, kInfinity);
  at::set_num_threads(3);
  const double together = clip_norm(all, kInfinity);
  at::set_num_threads(before);
  CHECK(alone == together);
  CHECK(clip_norm(one_with(1e30F), kInfinity) == Approx(std::sqrt(3.0) * 1e30));
  CHECK(clip_norm(one_with(1e-30F), kInfinity) == Approx(std::sqrt(3.0) * 1e-30));
}

TEST_CASE("gradients that are not finite are told of and left as they are", "[optimizer]") {
  for (const float wrong : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<at::Tensor> all = one_with(2);
    all[0].grad()[1] = wrong;
    CHECK_FALSE(std::isfinite(clip_norm(all, 1)));
    CHECK(all[0].grad()[0].item<float>() == 2);
  }
}

TEST_CASE("the loss's scale halves where gradients overflow, and doubles after 2000 good steps", "[optimizer]") {
  LossScaler scaler;
  const double begun = scaler.scale();
  std::vector<at::Tensor> all = one_with(static_cast<float>(begun) * 3);
  CHECK(scaler.unscale(all));
  CHECK(all[0].grad()[0].item<float>() == 3);
  const std::vector<at::Tensor> overflown = one_with(std::numeric_limits<float>::infinity());
  CHECK_FALSE(scaler.unscale(overflown));
  CHECK(scaler.scale() == begun / 2);
  CHECK(std::isinf(overflown[0].grad()[0].item<float>()));
  for (int i = 0; i < 1999; ++i) CHECK(scaler.unscale(one_with(1)));
  CHECK(scaler.scale() == begun / 2);

  LossScaler later;  // one that goes on from there
  later.restore(scaler.state());
  for (LossScaler* one : {&scaler, &later}) {
    CHECK(one->unscale(one_with(1)));
    CHECK(one->scale() == begun);
  }
  CHECK_THROWS_AS(later.restore({}), Error);
}

TEST_CASE("gradients that are finite at no scale end training with what to do", "[optimizer]") {
  LossScaler scaler;
  const std::vector<at::Tensor> wrong = one_with(std::numeric_limits<float>::quiet_NaN());
  std::string said;
  for (int i = 0; i < 100 && said.empty(); ++i) {
    try {
      const bool is_good = scaler.unscale(wrong);  // a CHECK would keep what it throws
      CHECK_FALSE(is_good);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kUnsupported);
      said = error.what();
    }
  }
  CHECK(said.find("lower learning rate") != std::string::npos);
  CHECK(scaler.scale() > 0);
}

TEST_CASE("rounding by chance gives one of the two beside a number, in proportion, by seed and place", "[optimizer]") {
  constexpr std::size_t kCount = 1 << 16;
  const float low = bfloat16(0x3f80), high = bfloat16(0x3f81);
  const std::vector<float> values(kCount, low + (high - low) * 0.3F);
  std::vector<std::uint16_t> rounded(kCount), again(kCount);
  round_stochastically({1, 2, 3}, 0, values.data(), kCount, rounded.data());
  CHECK(std::ranges::all_of(rounded, [](std::uint16_t one) { return one == 0x3f80 || one == 0x3f81; }));
  // A standard deviation is 0.0018.
  const auto up = static_cast<double>(std::ranges::count(rounded, 0x3f81));
  CHECK(up / kCount == Approx(0.3).margin(0.008));
  // In parts, as threads do it.
  for (std::size_t at = 0; at < kCount; at += 4096)
    round_stochastically({1, 2, 3}, static_cast<std::int64_t>(at), values.data() + at, 4096, again.data() + at);
  CHECK(again == rounded);
  for (const Chances& other : {Chances{2, 2, 3}, Chances{1, 3, 3}, Chances{1, 2, 4}}) {
    round_stochastically(other, 0, values.data(), kCount, again.data());
    CHECK(again != rounded);
  }
}

TEST_CASE("rounding by chance keeps what is bfloat16 already, signs, infinity and NaN", "[optimizer]") {
  for (std::uint32_t bits = 0; bits < 0x10000; bits += 4) {
    const float values[] = {bfloat16(static_cast<std::uint16_t>(bits)), bfloat16(static_cast<std::uint16_t>(bits + 1)),
                            bfloat16(static_cast<std::uint16_t>(bits + 2)),
                            bfloat16(static_cast<std::uint16_t>(bits + 3))};
    std::uint16_t rounded[4] = {};
    round_stochastically({bits, 0, 0}, 0, values, 4, rounded);
    for (int i = 0; i < 4; ++i) {
      if (std::isnan(values[i]) ? !std::isnan(bfloat16(rounded[i])) : rounded[i] != bits + static_cast<unsigned>(i))
        FAIL("bfloat16 " << bits + static_cast<unsigned>(i) << " became " << rounded[i]);
    }
  }
  const float least_nan[] = {std::bit_cast<float>(0x7f800001U)};
  std::uint16_t rounded[1] = {};
  round_stochastically({0, 0, 0}, 0, least_nan, 1, rounded);
  CHECK(std::isnan(bfloat16(rounded[0])));
}

}  // namespace halfbyte::training
