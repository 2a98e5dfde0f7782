// What `halfbyte tokenize` reads: lines, and lists of token ids.
#pragma once

#include <functional>
#include <string_view>

#include "models/tokenizers/tokenizer.h"

namespace halfbyte::cli {

// Calls `act` for every part that ends with `separator`, or with the text; the separator is no part of it.
void for_each_line(std::string_view text, char separator, const std::function<void(std::string_view)>& act);

// Ids separated by spaces, line ends or commas, perhaps in brackets as JSON has them. Errors: UsageError.
models::TokenIds parse_ids(std::string_view list);

}  // namespace halfbyte::cli
