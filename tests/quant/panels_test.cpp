// What panels' kernels are given beside their input, for every level that this CPU has.
#include <vector>

#include "quant/kernels/kernels.h"
#include "tests/catch.h"
#include "tests/quant/levels.h"

namespace {

using namespace halfbyte::quant;
using namespace halfbyte::quant::test;
using kernels::Byte;
using kernels::kStepBytes;

// Steps of a panel, each of four codes of every row; the largest ones are among them.
std::vector<Byte> steps_of(std::size_t rows, std::size_t steps) {
  std::vector<Byte> out(steps * rows * kStepBytes);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int code = i % 7 == 0 ? 127 : i % 5 == 0 ? -127 : static_cast<int>(i * 37 % 255) - 127;
    out[i] = static_cast<Byte>(static_cast<signed char>(code));
  }
  return out;
}

// Of each run and row two sums in 16 bits, those of the first and of the last two codes of its steps, times -8.
std::vector<std::int32_t> sums_of(const std::vector<Byte>& steps, std::size_t rows, std::size_t runs,
                                  std::size_t run_steps) {
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < runs * rows; ++i) {
    int sums[2] = {};
    for (std::size_t step = 0; step < run_steps; ++step) {
      const Byte* const codes = steps.data() + ((i / rows * run_steps + step) * rows + i % rows) * kStepBytes;
      for (std::size_t k = 0; k < kStepBytes; ++k) sums[k / 2] -= 8 * static_cast<signed char>(codes[k]);
    }
    out.push_back(static_cast<std::int32_t>((static_cast<std::uint32_t>(sums[1]) << 16) |
                                            (static_cast<std::uint32_t>(sums[0]) & 0xffff)));
  }
  return out;
}

TEST_CASE("runs of a panel begin with the input times the negated code of zero", "[quant][int8][levels]") {
  constexpr std::int32_t kBehind = 0x5a5a5a5a;
  std::size_t tried = 0;
  for (const kernels::Table* table : tables()) {
    if (!table->int8_panels || !table->int8_panels->first_sums) continue;
    for (std::size_t rows = 1; rows <= table->int8_panels->input.most_rows; ++rows) {
      for (const std::size_t run_steps : {4, 8, 16}) {
        for (const std::size_t runs : {1, 2, 6}) {
          CAPTURE(table->name, rows, run_steps, runs);
          const std::vector<Byte> steps = steps_of(rows, runs * run_steps);
          std::vector<std::int32_t> expected = sums_of(steps, rows, runs, run_steps);
          std::vector<std::int32_t> sums(expected.size() + 1, kBehind);
          table->int8_panels->first_sums(steps.data(), rows, runs, run_steps, sums.data());
          expected.push_back(kBehind);
          CHECK(sums == expected);
          ++tried;
        }
      }
    }
  }
  if (tried == 0) HALFBYTE_SKIP("no level of this CPU adds up products of panels in 16 bits");
}

}  // namespace
