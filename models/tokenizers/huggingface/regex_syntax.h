// Oniguruma's regular expressions (Ruby's syntax, which tokenizer.json is written in) in PCRE2's words.
#pragma once

#include <string>
#include <string_view>

namespace halfbyte::models::huggingface {

// What it returns means under PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE what `pattern` means to the library: \s, \w, \b,
// \h and \p{...} as Oniguruma reads them, sets in sets, &&, (?m) for a dot that matches newlines, {,n}. Escapes that it
// does not know go through. Errors: kUnsupported, naming the construct and `where`; kCorrupt for a set without an end.
std::string pcre2_pattern(std::string_view pattern, const std::string& where);

}  // namespace halfbyte::models::huggingface
