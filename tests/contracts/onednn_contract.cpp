// Plain oneDNN, without LibTorch: it makes no primitive for a product of two dtypes, and none for float16 on most CPUs.
// halfbyte's product takes what is refused there, because it asks first. A program of its own: nothing else may bring
// another oneDNN.
#include <cmath>
#include <cstdio>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <vector>

#include <halfbyte/linear.h>

#include "quant/kernels/onednn/onednn.h"

namespace {

using dnnl::memory;
using halfbyte::Dtype;

constexpr std::int64_t kRows = 32, kOut = 48, kIn = 64;

// What oneDNN says when it is asked for the product; empty when it makes one.
std::string refusal(memory::data_type input, memory::data_type weight) try {
  const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  const memory::desc x({kRows, kIn}, input, memory::dims{kIn, 1});
  const memory::desc w({kIn, kOut}, weight, memory::dims{1, kIn});
  const memory::desc y({kRows, kOut}, memory::data_type::f32, memory::dims{kOut, 1});
#if DNNL_VERSION_MAJOR >= 3
  dnnl::matmul(dnnl::matmul::primitive_desc(cpu, x, w, y));
#else
  dnnl::matmul(dnnl::matmul::primitive_desc({x, w, y}, cpu));
#endif
  return {};
} catch (const dnnl::error& error) {
  return error.what();
}

std::vector<std::byte> values(std::int64_t count, Dtype dtype, unsigned seed) {
  std::vector<float> floats(static_cast<std::size_t>(count));
  for (float& value : floats) {
    seed = seed * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<int>(seed >> 16) - 32768) / 65536.0F;
  }
  std::vector<std::byte> out(floats.size() * static_cast<std::size_t>(halfbyte::size_bytes(dtype)));
  halfbyte::quant::convert(reinterpret_cast<const std::byte*>(floats.data()), Dtype::kFloat32, out.data(), dtype,
                           count);
  return out;
}

std::vector<float> as_floats(const std::vector<std::byte>& bytes, Dtype dtype) {
  std::vector<float> out(bytes.size() / static_cast<std::size_t>(halfbyte::size_bytes(dtype)));
  halfbyte::quant::convert(bytes.data(), dtype, reinterpret_cast<std::byte*>(out.data()), Dtype::kFloat32,
                           static_cast<std::int64_t>(out.size()));
  return out;
}

// Largest difference of halfbyte's product from one in float64.
double halfbyte_error(Dtype input, Dtype weight) {
  const auto x = values(kRows * kIn, input, 1), w = values(kOut * kIn, weight, 2);
  std::vector<float> y(kRows * kOut);
  halfbyte::quant::WeightMatrix matrix;
  matrix.dense_dtype = weight;
  matrix.rows = w.data();
  matrix.out_features = kOut;
  matrix.in_features = kIn;
  halfbyte::quant::linear(
      matrix, {x.data(), input, kRows, nullptr, input, reinterpret_cast<std::byte*>(y.data()), Dtype::kFloat32});
  const std::vector<float> xs = as_floats(x, input), ws = as_floats(w, weight);
  double worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    double sum = 0;
    for (std::size_t k = 0; k < kIn; ++k) sum += double{xs[i / kOut * kIn + k]} * ws[i % kOut * kIn + k];
    worst = std::max(worst, std::fabs(sum - y[i]));
  }
  return worst;
}

int check(const char* what, memory::data_type input, memory::data_type weight, Dtype x, Dtype w, bool must_refuse) {
  const std::string said = refusal(input, weight);
  const double error = halfbyte_error(x, w);
  std::printf("%s: oneDNN %s; halfbyte's largest error %.1e\n", what, said.empty() ? "multiplies" : said.c_str(),
              error);
  // "a primitive descriptor iterator", "a descriptor for a matmul primitive": by the version.
  const bool is_as_expected = !must_refuse || said.find("could not create a") != std::string::npos;
  return is_as_expected && error < 2e-2 ? 0 : 1;
}

}  // namespace

int main() {
  using Type = memory::data_type;
  int failures = check("float32 x bfloat16", Type::f32, Type::bf16, Dtype::kFloat32, Dtype::kBfloat16, true);
  failures += check("bfloat16 x float32", Type::bf16, Type::f32, Dtype::kBfloat16, Dtype::kFloat32, true);
  failures += check("float32 x float16", Type::f32, Type::f16, Dtype::kFloat32, Dtype::kFloat16, true);
  failures +=
      check("float16 x float16", Type::f16, Type::f16, Dtype::kFloat16, Dtype::kFloat16, dnnl_version()->major < 3);
  failures += check("bfloat16 x bfloat16", Type::bf16, Type::bf16, Dtype::kBfloat16, Dtype::kBfloat16, false);
  // Asked, never called: no product of float16 or of two dtypes can reach it.
  if (halfbyte::quant::onednn::supports(Dtype::kFloat16)) ++failures;
  return failures;
}
