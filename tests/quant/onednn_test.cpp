// oneDNN behind its own library: there, or absent with a reason.
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "quant/kernels/onednn/onednn.h"
#include "quant/kernels/onednn/shim.h"
#include "tests/catch.h"
#include "tests/quant/float_rows.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;
using namespace halfbyte::quant::test;

TEST_CASE("oneDNN is there or says why not", "[quant][onednn]") {
  if (onednn::available()) {
    CHECK(onednn::why_not().empty());
    CHECK_THAT(onednn::version(), Catch::Contains("."));
  } else {
    CHECK_FALSE(onednn::why_not().empty());
    CHECK(onednn::version().empty());
    CHECK_FALSE(onednn::supports(Dtype::kFloat32));
    CHECK_FALSE(onednn::supports(Dtype::kBfloat16));
  }
  CHECK_FALSE(onednn::supports(Dtype::kFloat16));
  CHECK_FALSE(onednn::supports(Dtype::kInt8));
  const char* wanted = std::getenv("HALFBYTE_ONEDNN");
  if (wanted && (std::string(wanted).empty() || std::string(wanted) == "off")) CHECK_FALSE(onednn::available());
}

TEST_CASE("oneDNN multiplies rightly what it says it supports", "[quant][onednn]") {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
    if (!onednn::supports(dtype)) continue;
    for (const std::int64_t m : {9, 16, 100}) {
      for (const std::int64_t n : {1, 32, 77}) {
        for (const std::int64_t k : {16, 172, 1024}) {
          CAPTURE(name(dtype), m, n, k);
          const std::vector<std::byte> a = to_dtype(gaussian(static_cast<std::size_t>(m * k), 1, 1.0f), dtype);
          const std::vector<std::byte> b = to_dtype(gaussian(static_cast<std::size_t>(n * k), 2, 1.0f), dtype);
          std::vector<float> c(static_cast<std::size_t>(m * n), NAN);
          const onednn::Matmul matmul{dtype, m, n, k, a.data(), b.data(), c.data()};
          if (!onednn::prepare(matmul)) continue;  // no brgemm for this shape: linear() falls back
          REQUIRE(onednn::run(matmul));
          const std::vector<float> x = to_floats(a, dtype), w = to_floats(b, dtype);
          double worst = 0;
          for (std::int64_t i = 0; i < m * n; ++i) {
            double sum = 0;
            for (std::int64_t j = 0; j < k; ++j)
              sum += static_cast<double>(x[static_cast<std::size_t>(i / n * k + j)]) *
                     w[static_cast<std::size_t>(i % n * k + j)];
            worst = std::max(worst, std::isnan(c[static_cast<std::size_t>(i)])
                                        ? INFINITY
                                        : std::fabs(c[static_cast<std::size_t>(i)] - sum));
          }
          CHECK(worst < 1e-4 * std::sqrt(static_cast<double>(k)));
        }
      }
    }
  }
}

TEST_CASE("a product that oneDNN cannot make is refused, not thrown", "[quant][onednn]") {
  CHECK_FALSE(onednn::prepare({Dtype::kFloat32, -1, 4, 16, nullptr, nullptr, nullptr}));
}

}  // namespace
