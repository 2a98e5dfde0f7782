// Patterns of names of tensors and modules, as options have them.
#pragma once

#include <string_view>

namespace halfbyte::models {

// '*' matches any run of characters, '?' one character; a pattern without either also matches a whole dotted part
// sequence of the name ("lm_head" matches "lm_head.weight"; "layers.1" does not match "layers.10...").
bool matches_pattern(std::string_view pattern, std::string_view name) noexcept;

}  // namespace halfbyte::models
