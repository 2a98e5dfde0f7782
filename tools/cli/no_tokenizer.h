// The error of a checkpoint that is asked for text and has no tokenizer.
#pragma once

#include <string>

namespace halfbyte::cli {

// `cure`: what else the user can do.
[[noreturn]] void fail_no_tokenizer(const std::string& checkpoint, const std::string& cure);

}  // namespace halfbyte::cli
