#include "convert/calibrate/gptq.h"

#include <cmath>
#include <limits>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <halfbyte/error.h>
#include <halfbyte/scheme.h>

#include "convert/calibrate/triangular.h"
#include "tests/catch.h"

using namespace halfbyte;
using namespace halfbyte::convert;
using namespace halfbyte::convert::calibrate;

namespace {

constexpr std::int64_t kRows = 24, kColumns = 640, kTokens = 900;  // columns: beyond a block and a panel

at::Tensor random(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  return at::randn({rows, columns}, at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kFloat));
}

// Inputs of which some are like others, and some much larger.
at::Tensor moments() {
  at::Tensor x =
      random(kTokens, kColumns, 1).mm(random(kColumns, kColumns, 2) * 0.03) + random(kTokens, kColumns, 3) * 0.3;
  x.narrow(1, 7, 5).mul_(9);
  return x.t().mm(x);
}

at::Tensor values_of(const PackedMatrix& matrix) {
  const at::Tensor out = at::empty({kRows, kColumns}, at::kFloat);
  matrix.values({out.mutable_data_ptr<float>(), static_cast<std::size_t>(out.numel())}, 1);
  return out;
}

// Column by column in double precision, as the paper has it: no blocks, and H's inverse as such.
at::Tensor slow_gptq(const at::Tensor& weights, const at::Tensor& moments, const PackedMatrix& matrix) {
  const at::Tensor order = moments.diagonal().argsort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  at::Tensor sorted = moments.to(at::kDouble).index_select(0, order).index_select(1, order);
  sorted.diagonal().add_(0.01 * moments.diagonal().to(at::kDouble).mean().item<double>());
  const at::Tensor factor = at::linalg_cholesky(at::linalg_inv(sorted), /*upper=*/true);
  at::Tensor left = weights.to(at::kDouble).index_select(1, order), out = at::zeros_like(left);
  const std::int64_t group_size = matrix.group_size(), row_groups = kColumns / group_size;
  for (std::int64_t k = 0; k < kColumns; ++k) {
    const std::int64_t column = order[k].item<std::int64_t>();
    for (std::int64_t row = 0; row < kRows; ++row) {
      const Group& group = matrix.groups()[static_cast<std::size_t>(row * row_groups + column / group_size)];
      const double wanted = left[row][k].item<double>();
      std::uint8_t code = 0;
      const double value = matrix.levels().nearest(group, static_cast<float>(wanted), code);
      out[row][column] = value;
      left[row].sub_(factor[k] * ((wanted - value) / factor[k][k].item<double>()));
    }
  }
  return out.to(at::kFloat);
}

// What the products lose: tr((W - Q) H (W - Q)^T).
double loss(const at::Tensor& weights, const at::Tensor& values, const at::Tensor& moments) {
  const at::Tensor difference = (weights - values).to(at::kDouble);
  return difference.mm(moments.to(at::kDouble)).mul(difference).sum().item<double>();
}

}  // namespace

TEST_CASE("gptq: the codes of the plain algorithm in double precision", "[gptq]") {
  const char* name = GENERATE("sym_int4", "asym_int4", "nf4", "hb4");
  CAPTURE(name);
  const at::Tensor weights = random(kRows, kColumns, 4) * 0.05, given = moments();
  PlannedTensor planned{};
  planned.scheme = find_scheme(name);
  planned.group_size = 32;
  PackedMatrix matrix(planned, {kRows, kColumns});
  matrix.quantize({weights.const_data_ptr<float>(), static_cast<std::size_t>(weights.numel())}, {},
                  quant::Search::kSquaredError, 1);
  const double nearest = loss(weights, values_of(matrix), given);
  const at::Tensor wanted = slow_gptq(weights, given, matrix);
  gptq(weights, feedback_of(given.clone()), matrix, 2);
  const at::Tensor found = values_of(matrix);
  // One weight that lies between two codes goes the other way, and others of its row follow: measured at most 2 %.
  CHECK(found.eq(wanted).to(at::kDouble).mean().item<double>() > 0.95);
  const double slow = loss(weights, wanted, given), fast = loss(weights, found, given);
  CHECK(std::abs(fast - slow) < 0.01 * slow);
  CHECK(fast < 0.6 * nearest);
}

TEST_CASE("gptq: a factor from the end, and its inverse, over several panels", "[gptq]") {
  for (const std::int64_t size : {1, 300, 512, 513, 1100, 1600}) {
    CAPTURE(size);
    const at::Tensor x = random(size + 50, size, 5);
    at::Tensor moments = x.t().mm(x);
    moments.diagonal().add_(static_cast<double>(size));
    at::Tensor factor = moments.clone();
    REQUIRE(factor_from_the_end(factor));
    CHECK(factor.equal(factor.triu()));
    CHECK((factor.mm(factor.t()) - moments).abs().max().item<double>() < 1e-4 * moments.max().item<double>());
    at::Tensor inverse = factor.clone();
    invert_upper(inverse);
    const at::Tensor one = inverse.mm(factor);
    CHECK((one - at::eye(size)).abs().max().item<double>() < 1e-3);
  }
}

TEST_CASE("gptq: moments that have no factor get more damping, and then an error", "[gptq]") {
  at::Tensor moments = at::zeros({64, 64}, at::kFloat);
  CHECK(feedback_of(moments.clone()).factor.isfinite().all().item<bool>());  // nothing was seen
  moments.fill_(1.0);                                                        // every column the same: of rank one
  CHECK(feedback_of(moments.clone()).factor.isfinite().all().item<bool>());
  moments.fill_(std::numeric_limits<float>::quiet_NaN());
  CHECK_THROWS_AS(feedback_of(moments.clone()), Error);
}
