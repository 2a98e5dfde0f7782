// Characters that Oniguruma's Unicode version knows and PCRE2's does not, by class.
#pragma once

#include <string_view>

namespace halfbyte::models::huggingface {

inline constexpr std::string_view kBinaryProperties[] = {"alphabetic",
                                                         "uppercase",
                                                         "lowercase",
                                                         "math",
                                                         "hexdigit",
                                                         "asciihexdigit",
                                                         "ideographic",
                                                         "emoji",
                                                         "emojipresentation",
                                                         "emojimodifier",
                                                         "emojimodifierbase",
                                                         "emojicomponent",
                                                         "extendedpictographic",
                                                         "idstart",
                                                         "idcontinue",
                                                         "xidstart",
                                                         "xidcontinue",
                                                         "dash",
                                                         "diacritic",
                                                         "extender",
                                                         "quotationmark",
                                                         "variationselector",
                                                         "defaultignorablecodepoint",
                                                         "cased",
                                                         "caseignorable"};

// As it stands between brackets; `name` is a general category ("L", "Lu"), or a class of char_set.cpp.
inline std::string_view newer_in_class(std::string_view) { return {}; }

}  // namespace halfbyte::models::huggingface
