#include <halfbyte/dtype_policy.h>

#include <array>

#include <halfbyte/error.h>

namespace halfbyte {
namespace {

struct PolicyName {
  std::string_view text;
  DtypePolicy policy;
};

// The first name of a policy is the one it is printed with.
const auto& policy_names() {
  static const std::array rows = {
      PolicyName{"amp:bfloat16", DtypePolicy::amp(Dtype::kBfloat16)},
      PolicyName{"amp", DtypePolicy::amp(Dtype::kBfloat16)},
      PolicyName{"amp:float16", DtypePolicy::amp(Dtype::kFloat16)},
      PolicyName{"half", DtypePolicy::half()},
      PolicyName{"float16", DtypePolicy::half()},
      PolicyName{"bfloat16", DtypePolicy::bfloat16()},
      PolicyName{"float32", DtypePolicy::float32()},
      PolicyName{"original", DtypePolicy::original()},
  };
  return rows;
}

}  // namespace

DtypePolicy DtypePolicy::amp(Dtype dtype) {
  if (dtype != Dtype::kBfloat16 && dtype != Dtype::kFloat16) {
    throw Error(ErrorCode::kInvalidArgument,
                "amp(" + std::string(halfbyte::name(dtype)) + "): mixed precision computes in bfloat16 or float16");
  }
  return {Kind::kAmp, dtype};
}

DtypePolicy DtypePolicy::parse(std::string_view text) {
  std::string known;
  for (const PolicyName& row : policy_names()) {
    if (row.text == text) return row.policy;
    known += (known.empty() ? "" : ", ") + std::string(row.text);
  }
  throw Error(ErrorCode::kInvalidArgument, "dtype policy \"" + std::string(text) + "\" is not one of " + known);
}

std::string DtypePolicy::name() const {
  for (const PolicyName& row : policy_names()) {
    if (row.policy == *this) return std::string(row.text);
  }
  return std::string(halfbyte::name(dtype_));
}

}  // namespace halfbyte
