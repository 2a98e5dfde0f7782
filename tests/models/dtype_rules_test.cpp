// The dtype policies as a table: policy x role x recorded dtype.
#include <halfbyte/dtype_policy.h>
#include <halfbyte/error.h>

#include "models/dtype_rules.h"
#include "tests/catch.h"

namespace halfbyte::models {
namespace {

TEST_CASE("each policy gives each role its dtype", "[policy]") {
  struct Case {
    const char* policy;
    Role role;
    Dtype recorded;
    Dtype loaded;
  };
  using enum Dtype;
  const Case cases[] = {
      {"amp:bfloat16", Role::kLinear, kFloat32, kBfloat16},
      {"amp:bfloat16", Role::kHead, kFloat16, kBfloat16},
      {"amp:bfloat16", Role::kNorm, kFloat16, kFloat16},
      {"amp:bfloat16", Role::kEmbedding, kFloat32, kFloat32},
      {"amp:bfloat16", Role::kBuffer, kFloat32, kFloat32},
      {"amp:bfloat16", Role::kBuffer, kFloat16, kFloat16},
      {"amp:float16", Role::kLinear, kBfloat16, kFloat16},
      {"half", Role::kBuffer, kFloat32, kFloat16},
      {"half", Role::kNorm, kBfloat16, kFloat16},
      {"half", Role::kEmbedding, kBfloat16, kFloat16},
      {"bfloat16", Role::kNorm, kFloat32, kBfloat16},
      {"float32", Role::kLinear, kBfloat16, kFloat32},
      {"half", Role::kBuffer, kInt64, kInt64},
      {"float32", Role::kUnknown, kUint8, kUint8},
      {"original", Role::kLinear, kBfloat16, kBfloat16},
      {"original", Role::kHead, kFloat32, kFloat32},
      {"original", Role::kBuffer, kFloat16, kFloat16},
      {"original", Role::kUnknown, kFloat64, kFloat64},
  };
  for (const Case& test : cases) {
    INFO(test.policy << ", " << name(test.role) << ", recorded " << halfbyte::name(test.recorded));
    CHECK(loaded_dtype(DtypePolicy::parse(test.policy), test.role, test.recorded, false) == test.loaded);
    if (!is_floating(test.recorded)) continue;
    CHECK(loaded_dtype(DtypePolicy::parse(test.policy), test.role, test.recorded, true) == kFloat32);
  }
}

TEST_CASE("policies are named as the command line names them", "[policy]") {
  for (const char* text : {"amp:bfloat16", "amp:float16", "half", "bfloat16", "float32", "original"}) {
    CHECK(DtypePolicy::parse(text).name() == text);
  }
  CHECK(DtypePolicy::parse("amp") == DtypePolicy::amp());
  CHECK(DtypePolicy::amp().stream() == Dtype::kFloat32);
  CHECK(DtypePolicy::half().stream() == Dtype::kFloat16);
  CHECK_FALSE(DtypePolicy::original().stream().has_value());
  CHECK_FALSE(DtypePolicy::original().operand().has_value());
  CHECK_THROWS_AS(DtypePolicy::parse("fp8"), Error);
  CHECK_THROWS_AS(DtypePolicy::amp(Dtype::kFloat32), Error);
}

}  // namespace
}  // namespace halfbyte::models
