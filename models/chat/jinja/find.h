// Searches in texts that strangers chose: linear in the text, whatever is looked for.
#pragma once

#include <cstddef>
#include <string_view>

namespace halfbyte::models::jinja {

// Where `part` stands first from `from` on; npos: nowhere. from <= text.size().
std::size_t find_text(std::string_view text, std::string_view part, std::size_t from) noexcept;

}  // namespace halfbyte::models::jinja
