#include "tools/cli/platform.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include <halfbyte/error.h>

#include "tools/cli/errors.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace halfbyte::cli {

bool stdin_is_terminal() noexcept { return isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() noexcept { return isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() noexcept { return isatty(STDERR_FILENO) == 1; }

int terminal_columns() noexcept {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::optional<int> output_columns() noexcept {
  constexpr int kFewest = 20;
  const char* said = std::getenv("COLUMNS");  // NOLINT(concurrency-mt-unsafe): nobody of ours sets it
  const std::string_view text = said ? said : "";
  int columns = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), columns);
  const bool is_number = code == std::errc() && end == text.data() + text.size() && columns > 0;
  winsize size{};
  if (!is_number) columns = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
  return columns > 0 ? std::optional(std::max(columns, kFewest)) : std::nullopt;
}

std::filesystem::path executable_path() { return std::filesystem::read_symlink("/proc/self/exe"); }

namespace {

// What asks a program to end. Those that whoever started us wants ignored (nohup, a shell's '&') are not in it.
sigset_t requests_to_end() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  return set;
}

}  // namespace

void become(const std::filesystem::path& program, char** argv, bool waits_asleep) {
  // Heap in huge pages: LibTorch's start alone touches 60 MB, 15 000 page faults in small ones. A user's own word wins.
  setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", /*overwrite=*/0);
  if (waits_asleep) setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
  // LibTorch takes 0.15 s to load, before main(): a Ctrl-C meanwhile waits for the verb's InterruptWatch.
  const sigset_t requests = requests_to_end();
  sigset_t previous;
  pthread_sigmask(SIG_BLOCK, &requests, &previous);
  execv(program.c_str(), argv);
  const int code = errno;
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  throw Error(code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
              "cannot start " + program.string() + ": " + std::generic_category().message(code));
}

void discard_output() noexcept {
  std::fflush(stdout);
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nothing < 0) return;
  ::dup2(nothing, STDOUT_FILENO);
  ::close(nothing);
}

void ignore_broken_pipes() noexcept { std::signal(SIGPIPE, SIG_IGN); }

void keep_freed_memory() noexcept {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);  // never
#endif
}

namespace {

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_, O_CLOEXEC) != 0) fail("cannot make a pipe");
  }
  ~Pipe() {
    close(ends_[0]);
    close_writer();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int writer() const noexcept { return ends_[1]; }
  void close_writer() noexcept {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  std::string read_all() const {
    std::string text;
    char block[4096];
    for (ssize_t size = 0; (size = read(ends_[0], block, sizeof block)) != 0;) {
      if (size < 0 && errno != EINTR) break;
      if (size > 0) text.append(block, static_cast<std::size_t>(size));
    }
    return text;
  }
  [[noreturn]] static void fail(const std::string& what) {
    throw Error(ErrorCode::kIo, what + ": " + std::generic_category().message(errno));
  }

 private:
  int ends_[2] = {-1, -1};
};

pid_t spawn(const std::filesystem::path& program, const std::vector<std::string>& words, const Pipe& out,
            const Pipe& messages) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.writer(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, messages.writer(), STDERR_FILENO);
  pid_t child = 0;
  const int code = posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code == 0) return child;
  throw Error(code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
              "cannot start " + program.string() + ": " + std::generic_category().message(code));
}

}  // namespace

Finished run_to_end(const std::filesystem::path& program, const std::vector<std::string>& words) {
  Pipe out;
  Pipe messages;
  const pid_t child = spawn(program, words, out, messages);
  out.close_writer();
  messages.close_writer();
  Finished result;
  std::thread reader([&] { result.messages = messages.read_all(); });
  result.output = out.read_all();
  reader.join();
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

// A thread waits for the signals instead of a handler catching them: request_stop() runs callbacks and takes locks,
// which a handler must not.
struct InterruptWatch::State {
  mutable std::mutex mutex;  // of the next three
  std::stop_source source;
  bool is_renewed = false;
  std::optional<std::function<void()>> last_words;  // there: the process ends at once
  std::atomic<bool> is_over = false;
  const sigset_t watched = chosen();
  std::optional<termios> terminal;
  sigset_t previous{};
  std::thread thread;

  State() {
    termios now{};
    if (tcgetattr(STDIN_FILENO, &now) == 0) terminal = now;
  }

  static sigset_t chosen() {
    sigset_t set = requests_to_end();
    sigaddset(&set, SIGUSR2);  // how the watch ends
    return set;
  }

  void wait() {
    bool was_sent = false, was_passed_on = false;
    for (siginfo_t info{};;) {
      const int signal = sigwaitinfo(&watched, &info);
      if (signal < 0) continue;  // the process was stopped, and goes on
      if (signal == SIGUSR2 && is_over) return;
      if (signal == SIGUSR2) die_of(signal);  // somebody else's, who means what it means
      end_if_told();
      const auto [current, never_ends] = now();
      std::stop_source stopping = current;
      const auto is_queued_with = [&](int value) {
        return info.si_code == SI_QUEUE && info.si_value.sival_int == value;
      };
      const bool is_known = std::exchange(is_queued_with(kPassedOnSignal) ? was_passed_on : was_sent, true);
      const bool is_first = !is_known && !is_queued_with(kInsistedSignal);
      stopping.request_stop();
      end_if_told();  // end_at_once() was called between the two, and saw no request yet
      if (never_ends ? signal != SIGINT : !is_first && signal != SIGHUP) die_of(signal);
    }
  }

  std::pair<std::stop_source, bool> now() const {
    const std::lock_guard lock(mutex);
    return {source, is_renewed};
  }

  std::stop_token renew() {
    const std::lock_guard lock(mutex);
    is_renewed = true;
    last_words.reset();
    source = std::stop_source();
    return source.get_token();
  }

  void set_last_words(std::optional<std::function<void()>> words) {
    const std::lock_guard lock(mutex);
    last_words = std::move(words);
  }

  // With both locks held to the end: who takes the last words back has to wait for it, and nobody says anything after.
  void end_if_told() noexcept {
    const std::lock_guard lock(mutex);
    if (!last_words) return;
    flockfile(stderr);
    if (stderr_is_terminal()) std::fputs("\r\033[K", stderr);  // a progress bar
    report_errors([this] {
      if (*last_words) (*last_words)();
      return ExitStatus::kDone;
    });
    std::_Exit(static_cast<int>(say_stopped()));
  }

  void die_of(int signal) const {
    if (terminal) tcsetattr(STDIN_FILENO, TCSANOW, &*terminal);
    std::signal(signal, SIG_DFL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    raise(signal);
  }
};

InterruptWatch::InterruptWatch() : state_(std::make_unique<State>()) {
  pthread_sigmask(SIG_BLOCK, &state_->watched, &state_->previous);
  state_->thread = std::thread([state = state_.get()] { state->wait(); });
}

InterruptWatch::~InterruptWatch() {
  state_->is_over = true;
  pthread_kill(state_->thread.native_handle(), SIGUSR2);
  state_->thread.join();
  // What came while the thread was ending has nothing left to stop, and would end the process as if nothing were done.
  const timespec at_once{};
  while (sigtimedwait(&state_->watched, nullptr, &at_once) > 0) {
  }
  pthread_sigmask(SIG_SETMASK, &state_->previous, nullptr);
}

std::stop_token InterruptWatch::token() const noexcept { return state_->now().first.get_token(); }

std::stop_token InterruptWatch::renew() { return state_->renew(); }

void InterruptWatch::end_at_once(std::function<void()> last_words) {
  state_->set_last_words(std::move(last_words));
  if (token().stop_requested()) state_->end_if_told();  // it came between the watch's beginning and this call
}

void InterruptWatch::request_only() { state_->set_last_words(std::nullopt); }

}  // namespace halfbyte::cli
