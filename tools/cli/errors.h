// How an error reaches the user: one line on stderr and an exit status. For main() of both programs.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "models/json/printable.h"
#include "tools/cli/exit_status.h"

namespace halfbyte::cli {

// The command line is wrong. what() is the line's text without "halfbyte: ".
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Runs `body`, then flushes stdout; what is thrown becomes one line on stderr and its status.
ExitStatus report_errors(const std::function<ExitStatus()>& body) noexcept;

// A checkpoint without a tokenizer was asked for text. `cure`: what else the user can do.
[[noreturn]] void fail_no_tokenizer(const std::string& checkpoint, const std::string& cure);

// Text of a file (a tensor's name, say) as it stays on its line and moves no cursor, however long.
inline std::string printable(std::string_view text) { return printable_whole(text); }

}  // namespace halfbyte::cli
