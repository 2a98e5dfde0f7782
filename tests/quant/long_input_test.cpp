// Rows of input that are long enough to be prepared in parts, by several threads.
#include <vector>

#include "quant/with_kernels.h"
#include "tests/catch.h"
#include "tests/quant/exact_products.h"
#include "tests/quant/float_rows.h"
#include "tests/quant/levels.h"
#include "tests/quant/max_threads.h"

namespace {

using namespace halfbyte;
using namespace halfbyte::quant;
using namespace halfbyte::quant::test;

constexpr std::int64_t kInputs = 1472, kOutputs = 37, kRows = 8;  // the last part is not whole

TEST_CASE("rows that are prepared in parts give what each gives alone", "[quant][levels]") {
  const MaxThreads threads(3);
  const std::vector<float> values = gaussian(kRows * kInputs, 31, 1.0f);
  for (const kernels::Table* table : tables()) {
    for (const char* name : {"sym_int4", "asym_int4", "affine_int4", "nf4", "sym_int8"}) {
      const Packed packed = quantized(gaussian(kOutputs * kInputs, 3), kInputs, {find_scheme(name), 64});
      for (const Arithmetic arithmetic : {Arithmetic::kFloat, Arithmetic::kInt8, Arithmetic::kMixed}) {
        CAPTURE(table->name, name, quant::name(arithmetic));
        const auto product = [&](std::int64_t first, std::int64_t rows) {
          const auto begin = values.begin() + first * kInputs;
          return multiply(*table, packed.matrix(), {begin, begin + rows * kInputs}, Dtype::kFloat32, arithmetic);
        };
        const std::vector<float> together = product(0, kRows);
        for (std::int64_t row = 0; row < kRows; ++row) {
          const auto begin = together.begin() + row * kOutputs;
          CHECK(product(row, 1) == std::vector<float>(begin, begin + kOutputs));
        }
      }
    }
  }
}

}  // namespace
