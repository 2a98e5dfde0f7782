#include "convert/calibrate/gptq.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

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

#include "convert/calibrate/descent.h"
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

PlannedTensor planned(const char* scheme, std::int64_t group_size) {
  PlannedTensor out{};
  out.scheme = find_scheme(scheme);
  out.group_size = group_size;
  out.scale_dtype = Dtype::kBfloat16;
  return out;
}

std::span<const float> flat(const at::Tensor& values) {
  return {values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel())};
}

at::Tensor values_of(const PackedMatrix& matrix) {
  const at::Tensor out = at::empty({kRows, kColumns}, at::kFloat);
  matrix.values({out.mutable_data_ptr<float>(), static_cast<std::size_t>(out.numel())}, 1);
  return out;
}

// Column by column in double precision, as the paper has it: no blocks, and H's inverse as such.
at::Tensor slow_gptq(const at::Tensor& weights, const at::Tensor& moments, const PackedMatrix& matrix) {
  const at::Tensor order = moments.diagonal().argsort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const at::Tensor sorted = moments.to(at::kDouble).index_select(0, order).index_select(1, order);
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
  given.diagonal().add_(0.01 * given.diagonal().mean().item<double>());
  PackedMatrix matrix(planned(name, 32), {kRows, kColumns});
  matrix.quantize(flat(weights), {}, quant::Search::kSquaredError, 1);
  const double nearest = loss(weights, values_of(matrix), given);
  const at::Tensor wanted = slow_gptq(weights, given, matrix);
  gptq(weights, feedback_of(given), matrix, 2);
  const at::Tensor found = values_of(matrix);
  // One weight that lies between two codes goes the other way, and others of its row follow: measured at most 2 %.
  CHECK(found.eq(wanted).to(at::kDouble).mean().item<double>() > 0.95);
  const double slow = loss(weights, wanted, given), fast = loss(weights, found, given);
  CHECK(std::abs(fast - slow) < 0.01 * slow);
  CHECK(fast < 0.6 * nearest);
}

TEST_CASE("descent: the loss falls until no other code or scale would lower it", "[gptq]") {
  const auto [name, group_size] = GENERATE(table<const char*, std::int64_t>({{"sym_int4", 32},
                                                                             {"sym_int4", 64},
                                                                             {"sym_int4", 640},
                                                                             {"asym_int4", 32},
                                                                             {"affine_int4", 32},
                                                                             {"nf4", 64},
                                                                             {"sym_int8", 128},
                                                                             {"hb4", 32},
                                                                             {"hb4_fine", 16}}));
  CAPTURE(name, group_size);
  const at::Tensor weights = random(kRows, kColumns, 4) * 0.05, given = moments();
  damp(given);
  PackedMatrix matrix(planned(name, group_size), {kRows, kColumns});
  matrix.quantize(flat(weights), {}, quant::Search::kSquaredError, 1);
  gptq(weights, feedback_of(given), matrix, 2);
  double before = loss(weights, values_of(matrix), given);
  const double first = before;
  for (int pass = 0; pass < 40; ++pass) {
    descend(weights, given, 1, matrix, 2);
    const double now = loss(weights, values_of(matrix), given);
    CHECK(now <= before * 1.000001);
    before = now;
  }
  CHECK(before < 0.97 * first);
  // Each code by itself is the best one: where another has the same loss but for rounding, either will do.
  const at::Tensor values = values_of(matrix), slopes = (weights - values).to(at::kDouble).mm(given.to(at::kDouble));
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t column = 0; column < kColumns; ++column) {
      const Group& group = matrix.groups()[static_cast<std::size_t>((row * kColumns + column) / group_size)];
      const double value = values[row][column].item<double>(), square = given[column][column].item<double>();
      std::uint8_t code;
      const double other =
          matrix.levels().nearest(group, static_cast<float>(value + slopes[row][column].item<double>() / square), code);
      const double change = value - other, gain = -change * (2 * slopes[row][column].item<double>() + change * square);
      CHECK(gain < 1e-6 * before);
    }
  }
}

TEST_CASE("descent: in many threads and passes at once the same bytes", "[gptq]") {
  const at::Tensor weights = random(kRows, kColumns, 6) * 0.05, given = moments();
  std::vector<PackedMatrix> results;
  for (const int threads : {1, 3}) {
    PackedMatrix& matrix = results.emplace_back(planned("hb4", 32), MatrixSize{kRows, kColumns});
    matrix.quantize(flat(weights), {}, quant::Search::kSquaredError, 1);
    descend(weights, given, 3, matrix, threads);
  }
  CHECK(std::ranges::equal(results[0].bytes(), results[1].bytes()));
}

TEST_CASE("descent: scales that groups share stay, and those of zeros", "[gptq]") {
  at::Tensor weights = random(kRows, kColumns, 7) * 0.05;
  weights.narrow(1, 0, 64).zero_();
  PlannedTensor nested = planned("nf4", 64);
  nested.is_nested = true;
  for (const PlannedTensor& each : {nested, planned("nf4", 64)}) {
    PackedMatrix matrix(each, {kRows, kColumns});
    matrix.quantize(flat(weights), {}, quant::Search::kSquaredError, 1);
    const std::vector<Group> before(matrix.groups().begin(), matrix.groups().end());
    descend(weights, moments(), 2, matrix, 2);
    std::int64_t changed = 0;
    for (std::size_t i = 0; i < before.size(); ++i) changed += before[i].scale != matrix.groups()[i].scale ? 1 : 0;
    CHECK((changed > 0) == !each.is_nested);
    if (!each.is_nested) CHECK(values_of(matrix).narrow(1, 0, 64).eq(0).all().item<bool>());
  }
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
  damp(moments);  // nothing was seen
  CHECK(moments.diagonal().eq(1).all().item<bool>());
  moments.fill_(1.0);                                                        // every column the same: of rank one
  CHECK(feedback_of(moments).factor.isfinite().all().item<bool>());
  moments.fill_(std::numeric_limits<float>::quiet_NaN());
  CHECK_THROWS_AS(feedback_of(moments), Error);
}
