#include "tools/cli/policy.h"

#include <algorithm>
#include <string_view>

#include <halfbyte/error.h>

#include "tools/cli/habits.h"
#include "tools/cli/spelling.h"

namespace halfbyte::cli {
namespace {

struct Alias {
  std::string_view alias;
  std::string_view name;
};
constexpr Alias kAliases[] = {{"amp", "amp:bfloat16"}, {"float16", "half"}};

std::string problem_with(const std::string& policy) {
  try {
    DtypePolicy::parse(policy);
    return "";
  } catch (const Error& error) {
    std::vector<std::string> words = policy_names();
    words.emplace_back("float16");
    return said(error) + hint(policy, words);
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
  std::vector<std::string> words = policy_names();
  for (const Alias& row : kAliases) words.emplace_back(row.alias);
  const Check known = one_of(words);
  const auto check = [known](std::string& value) -> std::string {
    const auto alias = std::ranges::find(kAliases, value, &Alias::alias);
    if (alias != std::end(kAliases)) value = alias->name;
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
