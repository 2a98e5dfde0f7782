// Which arithmetic a load chooses for packed products: the caller's word, the policy, the device and the CPU.
#include "loader/arithmetic_choice.h"

#include <halfbyte/error.h>

#include "tests/catch.h"

namespace halfbyte {
namespace {

using quant::Arithmetic;

Arithmetic chosen(ComputeMode mode, const DtypePolicy& policy, bool is_int8_fast, const Device& device = {}) {
  return choose_arithmetic({.dtype = policy, .compute = mode}, device, is_int8_fast);
}

TEST_CASE("auto takes int8 for 4-bit codes under amp on a CPU that is fast at it, and nowhere else", "[arithmetic]") {
  for (const auto& policy : {DtypePolicy::amp(), DtypePolicy::amp(Dtype::kFloat16)}) {
    CHECK(chosen(ComputeMode::kAuto, policy, true) == Arithmetic::kMixed);
    CHECK(chosen(ComputeMode::kAuto, policy, false) == Arithmetic::kFloat);
    CHECK(chosen(ComputeMode::kAuto, policy, true, Device(Device::Kind::kCuda)) == Arithmetic::kFloat);
    CHECK(chosen(ComputeMode::kFloat, policy, true) == Arithmetic::kFloat);
  }
  for (const auto& policy :
       {DtypePolicy::half(), DtypePolicy::bfloat16(), DtypePolicy::float32(), DtypePolicy::original()}) {
    CHECK(chosen(ComputeMode::kAuto, policy, true) == Arithmetic::kFloat);
    CHECK(chosen(ComputeMode::kInt8, policy, false) == Arithmetic::kInt8);
  }
}

TEST_CASE("int8 on a GPU is refused in words that name the device and the cure", "[arithmetic]") {
  try {
    chosen(ComputeMode::kInt8, DtypePolicy::amp(), true, Device(Device::Kind::kCuda, 1));
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK_THAT(error.what(), Catch::Contains("cuda:1") && Catch::Contains("compute auto or float"));
  }
}

}  // namespace
}  // namespace halfbyte
