// How an error reaches the user: one line on stderr, an object on stdout under --json, and an exit status. For main()
// of both programs.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "models/json/printable.h"
#include "tools/cli/exit_status.h"

namespace halfbyte::cli {

// The command line is wrong. what() is the line's text without "halfbyte: ".
class UsageError : public std::runtime_error {
 public:
  // `option`: what was typed wrongly, when the message does not begin with it.
  explicit UsageError(const std::string& message, std::string option = "")
      : std::runtime_error(message), option_(std::move(option)) {}
  // The option at fault, "--scheme"; empty: no single one.
  std::string option() const;

 private:
  std::string option_;
};

enum class ErrorOutput { kLine, kLineAndJson };

// Runs `body`, then flushes stdout; what is thrown becomes one line on stderr and its status. With kLineAndJson also
// {"error": {...}} on stdout (docs/json.md), unless the result stands there already.
ExitStatus report_errors(const std::function<ExitStatus()>& body, ErrorOutput output = ErrorOutput::kLine) noexcept;

// What is said where a thread could not be started, whoever wanted it.
inline constexpr const char* kNoThreads =
    "no more threads can be started; allow more (`ulimit -u`, `ulimit -v`), or take fewer";

// The line of a verb that was interrupted and has printed what there is: returns kInterrupted.
ExitStatus say_stopped(const std::string& note = "") noexcept;

// Text of a file (a tensor's name, say) as it stays on its line and moves no cursor, however long.
inline std::string printable(std::string_view text) { return printable_whole(text); }

}  // namespace halfbyte::cli
