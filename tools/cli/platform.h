// What the command line asks of the operating system: the terminal, Ctrl-C, starting the second program, and what the
// machine is. platform_posix.cpp, machine_linux.cpp and usable_cores_linux.cpp are the only files here to rewrite for
// another system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace halfbyte::cli {

bool stdin_is_terminal() noexcept;
bool stdout_is_terminal() noexcept;
bool stderr_is_terminal() noexcept;
int terminal_columns() noexcept;  // of stderr; 80 when it is none
// What results on stdout may take: the environment's COLUMNS, else the terminal's; nothing when it is no terminal.
std::optional<int> output_columns() noexcept;

std::filesystem::path executable_path();  // of this process

// Becomes `program`, with argv as this process had it; OpenMP's threads sleep where they wait, if so asked and the
// environment has no other word. A Ctrl-C then waits for the program's InterruptWatch. Returns only by throwing.
// Errors: kNotFound, kIo.
[[noreturn]] void become(const std::filesystem::path& program, char** argv, bool waits_asleep);

struct Finished {
  int exit_status = 0;   // 128 + the signal's number when one ended it, as a shell says it
  std::string output;    // of stdout
  std::string messages;  // of stderr
};

// Runs `program` to its end. Errors: kNotFound, kIo.
Finished run_to_end(const std::filesystem::path& program, const std::vector<std::string>& words);

// What this computer is. Empty or 0: not known.
struct Machine {
  std::string system;                 // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
  std::string cpu;                    // "AMD EPYC"
  std::vector<std::string> features;  // of the CPU, those that kernels can use, as Linux spells them
  int cores = 0;                      // that this process may run on
  std::uint64_t available_bytes = 0;  // memory that can be had without swapping
};
Machine machine();

// From now on to write where nobody reads any more is an error of the write and does not end the process: for work that
// has to be finished, or undone, whoever listens.
void ignore_broken_pipes() noexcept;

// From now on nothing that is written to stdout is seen.
void discard_output() noexcept;

// From now on memory that is freed stays the process's: for work that takes and frees large buffers all the time, which
// the kernel would clear anew each time.
void keep_freed_memory() noexcept;

// What a signal is queued with (sigqueue) by who passes on what the process may have been sent itself: with that it is
// one request, whichever comes first.
inline constexpr int kPassedOnSignal = 0x68616c66;
// And by who passes on the second one.
inline constexpr int kInsistedSignal = kPassedOnSignal + 1;

// While it lives, the first Ctrl-C (or SIGTERM, or SIGHUP) requests a stop and the second one ends the process, but for
// SIGHUP, which the end of a terminal may send twice. Those that were ignored when it began stay ignored. Create it
// before any other thread: threads inherit the blocked signals.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
  std::stop_token token() const noexcept;
  // A token that no Ctrl-C so far has stopped. From the first call on Ctrl-C never ends the process; SIGTERM and SIGHUP
  // do, and leave the terminal as it was when the watch began.
  std::stop_token renew();
  // From now on the first one ends the process with one line and status 130, after `last_words`, which run on the
  // watch's thread: for what leaves nothing behind and cannot be asked to stop, such as loading.
  void end_at_once(std::function<void()> last_words = {});
  // From now on the first one requests a stop, as at the beginning. When this returns, no last words are being said.
  void request_only();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace halfbyte::cli
