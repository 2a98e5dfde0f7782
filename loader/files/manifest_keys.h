// Fixed pieces of halfbyte.json's text, for its writer and its reader.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include <halfbyte/parts.h>

namespace halfbyte::files {

inline constexpr const char* kFormatName = "halfbyte";
inline constexpr std::string_view kHashKey = " \"xxh3_128\": \"";
inline constexpr std::size_t kHashDigits = 32;
inline constexpr std::string_view kHashEnding = "\"\n}\n";

// A scheme's row says by the part's name that its tensors have one of these, which version 1.0 had not.
inline constexpr auto kDeclaredParts = std::to_array<Part>({Part::kOffset, Part::kRowScale});

}  // namespace halfbyte::files
