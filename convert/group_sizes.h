// Which groups a scheme has.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <halfbyte/scheme.h>

namespace halfbyte::convert {

// "32, 64".
std::string listed(std::span<const std::int64_t> sizes);
// Also kPerChannel, where the scheme has one scale a row.
bool has_group_size(const Scheme& scheme, std::int64_t group_size);
// "groups of 64", "one scale a row".
std::string group_size_text(std::int64_t group_size);
// Errors: kInvalidArgument naming what there is.
void check_group_size(std::int64_t group_size, const Scheme& scheme);

// What a matrix of so many columns, at least one, is stored in when `wanted` is asked for: that, or the largest that
// divides them. Nothing: none does.
std::optional<std::int64_t> fitting_group_size(const Scheme& scheme, std::int64_t wanted, std::int64_t in_features);

}  // namespace halfbyte::convert
