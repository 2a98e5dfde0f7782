#include "models/architectures/naming.h"

#include <algorithm>
#include <array>

#include "models/architectures/tensor_table.h"

namespace halfbyte::models {
namespace {

constexpr auto kRoleNames =
    std::to_array<std::string_view>({"linear", "embedding", "head", "norm", "bias", "buffer", "router", "unknown"});

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

}  // namespace

std::string_view name(Role role) noexcept { return kRoleNames[static_cast<std::size_t>(role)]; }

bool matches(std::string_view pattern, std::string_view name) noexcept {
  while (!pattern.empty()) {
    if (pattern.starts_with("{}")) {
      const auto digits = static_cast<std::size_t>(std::ranges::find_if_not(name, is_digit) - name.begin());
      if (digits == 0) return false;
      pattern.remove_prefix(2);
      name.remove_prefix(digits);
    } else {
      if (name.empty() || name.front() != pattern.front()) return false;
      pattern.remove_prefix(1);
      name.remove_prefix(1);
    }
  }
  return name.empty();
}

std::vector<TensorPattern> patterns_of(const Naming& naming) {
  std::vector<TensorPattern> out;
  for (const TensorRow& row : tensor_table()) {
    const std::string_view name = naming.*row.module;
    if (name.empty() || !has_place(naming, row.place)) continue;
    const std::string path = path_above(naming, row.place, "{}", "{}") + std::string(name);
    out.push_back({path + std::string(row.suffix()), row.role});
    if (row.role == Role::kLinear && row.place != Place::kExperts) out.push_back({path + ".bias", Role::kBias});
  }
  return out;
}

}  // namespace halfbyte::models
