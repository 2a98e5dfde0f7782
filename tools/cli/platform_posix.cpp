#include "tools/cli/platform.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <system_error>
#include <thread>

#include <halfbyte/error.h>

namespace halfbyte::cli {

bool stderr_is_terminal() noexcept { return isatty(STDERR_FILENO) == 1; }

int terminal_columns() noexcept {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::filesystem::path executable_path() { return std::filesystem::read_symlink("/proc/self/exe"); }

void become(const std::filesystem::path& program, char** argv) {
  execv(program.c_str(), argv);
  const int code = errno;
  throw Error(code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
              "cannot start " + program.string() + ": " + std::generic_category().message(code));
}

// A thread waits for the signals instead of a handler catching them: request_stop() runs callbacks and takes locks,
// which a handler must not.
struct InterruptWatch::State {
  std::stop_source source;
  sigset_t previous{};
  std::thread thread;

  static sigset_t watched() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR2}) sigaddset(&set, signal);
    return set;
  }

  void wait() {
    const sigset_t set = watched();
    for (int signal = 0; sigwait(&set, &signal) == 0 && signal != SIGUSR2;) {
      if (!source.request_stop()) die_of(signal);
    }
  }

  static void die_of(int signal) {
    std::signal(signal, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    raise(signal);
  }
};

InterruptWatch::InterruptWatch() : state_(std::make_unique<State>()) {
  const sigset_t set = State::watched();
  pthread_sigmask(SIG_BLOCK, &set, &state_->previous);
  state_->thread = std::thread([state = state_.get()] { state->wait(); });
}

InterruptWatch::~InterruptWatch() {
  pthread_kill(state_->thread.native_handle(), SIGUSR2);
  state_->thread.join();
  pthread_sigmask(SIG_SETMASK, &state_->previous, nullptr);
}

std::stop_token InterruptWatch::token() const noexcept { return state_->source.get_token(); }

}  // namespace halfbyte::cli
