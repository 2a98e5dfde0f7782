// States of a value that has begun (SchemaFrame::state), by its kind.
#pragma once

#include <cstdint>

namespace halfbyte::serving {

// Strings: before the quote, between characters, behind a backslash, within \u00XX, within a character of several bytes
// (in SchemaFrame::blanks: the bytes left, and the range of the next one).
enum StringState : std::int64_t { kQuote, kCharacters, kEscape, kHex1, kHex2, kHex3, kHex4, kBytes };

// Lists, maps and objects: before the bracket, where the first or the end may come, where one must come, within a key
// (SchemaFrame::text is what of it is there), behind it, where a value must come, behind one.
enum GroupState : std::int64_t { kOpen, kFirst, kNext, kKey, kColon, kValue, kBehind };

}  // namespace halfbyte::serving
