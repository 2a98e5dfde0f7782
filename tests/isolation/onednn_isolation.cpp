// LibTorch's own oneDNN and Debian's libdnnl export the same weak symbols, so whichever a process loads first may serve
// both, with silently wrong numbers. This program is linked against the two in either order, and checks that products
// through halfbyte's isolated library are right before and after LibTorch has used its own.
#include <cmath>
#include <cstdio>
#include <vector>

#include <ATen/ATen.h>

#include <halfbyte/linear.h>

#include "quant/kernels/onednn/onednn.h"

namespace {

using halfbyte::Dtype;

constexpr std::int64_t kRows = 64;  // more than kDirectRows: through oneDNN where it is fit
constexpr std::int64_t kOut = 160;
constexpr std::int64_t kIn = 256;

// Largest difference from a float64 product, relative to the largest value.
double halfbyte_error(const at::Tensor& x, const at::Tensor& weight, Dtype dtype) {
  halfbyte::quant::WeightMatrix matrix;
  matrix.dense_dtype = dtype;
  matrix.rows = static_cast<const std::byte*>(weight.const_data_ptr());
  matrix.out_features = kOut;
  matrix.in_features = kIn;
  at::Tensor out = at::zeros({kRows, kOut}, at::kFloat);
  halfbyte::quant::linear(matrix, {static_cast<const std::byte*>(x.const_data_ptr()), dtype, kRows, nullptr, dtype,
                                   static_cast<std::byte*>(out.mutable_data_ptr()), Dtype::kFloat32});
  const at::Tensor wanted = at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t());
  return ((out.to(at::kDouble) - wanted).abs().max() / wanted.abs().max()).item<double>();
}

int check(const char* what, Dtype dtype, at::ScalarType type) {
  const at::Tensor x = at::randn({kRows, kIn}).to(type);
  const at::Tensor weight = at::randn({kOut, kIn}).to(type);
  const double before = halfbyte_error(x, weight, dtype);
  at::matmul(x, weight.t());  // LibTorch's own
  const double after = halfbyte_error(x, weight, dtype);
  std::printf("%s: error %.2e before LibTorch's product, %.2e after; oneDNN %s\n", what, before, after,
              halfbyte::quant::onednn::supports(dtype) ? "in use" : "not in use for it");
  return before < 1e-5 && after < 1e-5 ? 0 : 1;
}

}  // namespace

int main() {
  at::manual_seed(3);
  if (!halfbyte::quant::onednn::available()) {
    std::printf("skipped: %s\n", halfbyte::quant::onednn::why_not().c_str());
    return 77;
  }
  return check("float32", Dtype::kFloat32, at::kFloat) + check("bfloat16", Dtype::kBfloat16, at::kBFloat16);
}
