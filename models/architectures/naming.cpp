#include "models/architectures/naming.h"

#include <array>

#include "models/architectures/tensor_table.h"

namespace halfbyte::models {
namespace {

constexpr auto kRoleNames =
    std::to_array<std::string_view>({"linear", "embedding", "head", "norm", "bias", "buffer", "router", "correction",
                                     "convolution", "decay", "sink", "scale", "transposed", "unknown"});

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

}  // namespace

std::string_view name(Role role) noexcept { return kRoleNames[static_cast<std::size_t>(role)]; }

// Tried for every tensor with every pattern of its family: a loop over characters, which needs no optimiser to be quick.
bool matches(std::string_view pattern, std::string_view name) noexcept {
  std::size_t at = 0;  // in the name
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '{') {  // "{}"
      const std::size_t first = at;
      while (at < name.size() && is_digit(name[at])) ++at;
      if (at == first) return false;
      ++i;
    } else if (at == name.size() || name[at++] != pattern[i]) {
      return false;
    }
  }
  return at == name.size();
}

std::vector<TensorPattern> patterns_of(const Naming& naming) {
  std::vector<TensorPattern> out;
  for (const TensorRow& row : tensor_table()) {
    const std::string_view name = naming.*row.module;
    if (name.empty() || !has_place(naming, row.place)) continue;
    const std::string path = path_above(naming, row.place, "{}", "{}") + std::string(name);
    const bool is_transposed =
        naming.are_stacks_transposed && row.place == Place::kExperts && row.role == Role::kLinear;
    out.push_back({path + std::string(row.suffix()), is_transposed ? Role::kTransposed : row.role});
    if (row.module == &Naming::rotary) out.push_back({path + "." + kSlidingRope + std::string(row.suffix()), row.role});
    const bool may_have_bias = row.role == Role::kLinear ? row.place != Place::kExperts : row.has_bias != nullptr;
    if (may_have_bias) out.push_back({path + ".bias", Role::kBias});
  }
  return out;
}

}  // namespace halfbyte::models
