// Fixed pieces of halfbyte.json's text, for its writer and its reader.
#pragma once

#include <cstddef>
#include <string_view>

namespace halfbyte::files {

inline constexpr const char* kFormatName = "halfbyte";
inline constexpr std::string_view kHashKey = " \"xxh3_128\": \"";
inline constexpr std::size_t kHashDigits = 32;
inline constexpr std::string_view kHashEnding = "\"\n}\n";

}  // namespace halfbyte::files
