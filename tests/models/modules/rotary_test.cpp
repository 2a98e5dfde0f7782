// Rotary embedding: frequencies, and that no dtype disagreement reaches an operator.
#include "tests/catch.h"

#include <cmath>

#include <halfbyte/error.h>

#include "models/modules/rotary.h"

namespace halfbyte::models {
namespace {

RopeConfig rope(RopeType type) {
  RopeConfig config;
  config.type = type;
  config.rotary_dim = 64;
  config.theta = 500000;
  config.factor = 8;
  config.low_freq_factor = 1;
  config.high_freq_factor = 4;
  config.original_max_position_embeddings = 8192;
  return config;
}

TEST_CASE("frequencies follow each scaling's formula", "[rotary]") {
  const at::Tensor plain = inverse_frequencies(rope(RopeType::kDefault));
  const at::Tensor linear = inverse_frequencies(rope(RopeType::kLinear));
  const at::Tensor llama3 = inverse_frequencies(rope(RopeType::kLlama3));
  REQUIRE(plain.numel() == 32);
  for (int i = 0; i < 32; ++i) {
    const double base = std::pow(500000.0, -2.0 * i / 64.0);
    CHECK(plain[i].item<double>() == Approx(base).epsilon(1e-6));
    CHECK(linear[i].item<double>() == Approx(base / 8).epsilon(1e-6));
    const double wavelength = 2 * 3.14159265358979 / base;
    if (wavelength < 8192.0 / 4) CHECK(llama3[i].item<double>() == Approx(base).epsilon(1e-6));
    if (wavelength > 8192.0) CHECK(llama3[i].item<double>() == Approx(base / 8).epsilon(1e-6));
    CHECK(llama3[i].item<double>() <= base * (1 + 1e-6));
    CHECK(llama3[i].item<double>() >= base / 8 * (1 - 1e-6));
  }
}

TEST_CASE("the table is cast last, from float32 frequencies", "[rotary]") {
  const Rotary half(rope(RopeType::kDefault), Compute(DtypePolicy::half()), at::kHalf);
  const Rotary full(rope(RopeType::kDefault), Compute(DtypePolicy::float32()), at::kFloat);
  CHECK(half.named_buffers()["inv_freq"].scalar_type() == at::kHalf);
  const RotaryTable from_half = *half.table(32768, at::kCPU);
  const RotaryTable from_full = *full.table(32768, at::kCPU);
  CHECK(from_half.cosine.scalar_type() == at::kHalf);
  CHECK(from_half.cosine.equal(from_full.cosine.to(at::kHalf)));
  // What a cast of inv_freq itself would have done: angles wrong by radians at far positions.
  const at::Tensor naive =
      at::outer(at::arange(32768, at::kFloat), half.named_buffers()["inv_freq"].to(at::kFloat)).cos();
  CHECK((naive - from_full.cosine).abs().max().item<double>() > 0.5);
  CHECK((from_half.cosine.to(at::kFloat) - from_full.cosine).abs().max().item<double>() < 1e-3);
}

TEST_CASE("a query of another dtype than the table is refused by name", "[rotary]") {
  const Rotary full(rope(RopeType::kDefault), Compute(DtypePolicy::float32()), at::kFloat);
  const RotaryTable table = *full.table(4, at::kCPU);
  const at::Tensor query = at::ones({1, 4, 2, 64}, at::kHalf);
  const auto shape = [](const at::Tensor& t) { return t.unsqueeze(0).unsqueeze(2); };
  CHECK_THROWS_WITH(rotate(query, shape(table.cosine), shape(table.sine), /*is_interleaved=*/false),
                    Catch::Contains("rotary table is Float but the query is Half"));
}

}  // namespace
}  // namespace halfbyte::models
