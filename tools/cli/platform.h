// What the command line asks of the operating system: the terminal, Ctrl-C, and starting the second program.
// platform_posix.cpp is the only file here to rewrite for another system.
#pragma once

#include <filesystem>
#include <memory>
#include <stop_token>

namespace halfbyte::cli {

bool stderr_is_terminal() noexcept;
int terminal_columns() noexcept;  // of stderr; 80 when it is none

std::filesystem::path executable_path();  // of this process

// Becomes `program`, with argv as this process had it. Returns only by throwing. Errors: kNotFound, kIo.
[[noreturn]] void become(const std::filesystem::path& program, char** argv);

// While it lives, the first Ctrl-C (or SIGTERM) requests a stop and the second one ends the process.
// Create it before any other thread: threads inherit the blocked signals.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  std::stop_token token() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace halfbyte::cli
