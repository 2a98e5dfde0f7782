#include "tools/cli/policy.h"

#include <halfbyte/error.h>

#include "tools/cli/spelling.h"

namespace halfbyte::cli {
namespace {

std::string problem_with(const std::string& policy) {
  try {
    DtypePolicy::parse(policy);
    return "";
  } catch (const Error& error) {
    return said(error);
  }
}

}  // namespace

std::vector<std::string> policy_names() {
  return {"amp:bfloat16", "amp:float16", "half", "bfloat16", "float32", "original"};
}

Check dtype_policy() {
  return {[](std::string& value) { return problem_with(value); }, ""};
}

Check policy_word() {
  const Check known = one_of(policy_names());
  const auto check = [known](std::string& value) -> std::string {
    if (value == "float16") value = "half";
    if (value == "amp") value = "amp:bfloat16";
    return known.problem_with(value);
  };
  return {check, known.values};
}

Check policy_assignment() {
  const auto check = [](std::string& value) -> std::string {
    const std::size_t equals = value.rfind('=');
    if (equals == std::string::npos || equals == 0)
      return "'" + value + "' is not PATTERN=POLICY ('*down_proj=float32')";
    return problem_with(value.substr(equals + 1));
  };
  return {check};
}

std::vector<DtypeOverride> parse_overrides(const std::vector<std::string>& words) {
  std::vector<DtypeOverride> out;
  for (const std::string& word : words) {
    const std::size_t equals = word.rfind('=');
    out.push_back({word.substr(0, equals), DtypePolicy::parse(word.substr(equals + 1))});
  }
  return out;
}

}  // namespace halfbyte::cli
