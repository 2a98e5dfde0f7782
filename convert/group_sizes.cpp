#include "convert/group_sizes.h"

#include <algorithm>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

namespace halfbyte::convert {

std::string listed(std::span<const std::int64_t> sizes) {
  std::string out;
  for (const std::int64_t size : sizes) out += (out.empty() ? "" : ", ") + std::to_string(size);
  return out;
}

bool has_group_size(const Scheme& scheme, std::int64_t group_size) {
  const auto sizes = group_sizes(scheme);
  return group_size == kPerChannel ? scheme.layout != Layout::kBitsandbytes && has_code_of_zero(scheme)
                                   : std::ranges::find(sizes, group_size) != sizes.end();
}

std::string group_size_text(std::int64_t group_size) {
  return group_size == kPerChannel ? "one scale a row" : "groups of " + std::to_string(group_size);
}

void check_group_size(std::int64_t group_size, const Scheme& scheme) {
  if (has_group_size(scheme, group_size)) return;
  const bool has_channel = has_group_size(scheme, kPerChannel);
  throw Error(ErrorCode::kInvalidArgument, std::string(scheme.name) + " has no " + group_size_text(group_size) +
                                               "; known are " + listed(group_sizes(scheme)) +
                                               (has_channel ? " and 0 (one scale a row)" : ""));
}

std::optional<std::int64_t> fitting_group_size(const Scheme& scheme, std::int64_t wanted, std::int64_t in_features) {
  const std::int64_t asked = wanted == kPerChannel ? in_features : wanted;
  if (has_group_size(scheme, wanted) && in_features % asked == 0) return asked;
  const auto sizes = group_sizes(scheme);
  const auto fits = std::ranges::find_if(sizes, [&](std::int64_t size) { return in_features % size == 0; });
  return fits == sizes.end() ? std::nullopt : std::optional(*fits);
}

}  // namespace halfbyte::convert
