#include "tools/cli/rank_processes.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include <halfbyte/error.h>
#include <halfbyte/shared_memory_group.h>

#include "tools/cli/errors.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/platform.h"
#include "tools/cli/usable_cores.h"

namespace halfbyte::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kGrace{5};  // for the first rank to end in when it was told to
// For a first rank that leads to end in when another has failed: it finds out by itself, and tells whom it serves.
constexpr std::chrono::seconds kLastWords{4};
constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP};
// For the first rank to fail in as another did, and to say why: less than a group waits for a rank that is gone.
constexpr std::chrono::milliseconds kSameFailure{300};
constexpr std::size_t kMostMessages = 4096;  // bytes of a rank's that are shown

[[noreturn]] void fail(const char* doing) {
  throw Error(errno == ENOMEM || errno == EAGAIN || errno == EMFILE ? ErrorCode::kNoResources : ErrorCode::kIo,
              std::string(doing) + ": " + std::strerror(errno));  // NOLINT(concurrency-mt-unsafe): one thread
}

// Memory that whoever is started inherits.
int make_memory(const char* name, std::size_t bytes) {
  const int descriptor = ::memfd_create(name, 0);
  if (descriptor < 0 || ::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) fail("making memory for ranks");
  return descriptor;
}

std::vector<int> own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> out;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) out.push_back(cpu);
  }
  return out;
}

class RankProcesses {
 public:
  explicit RankProcesses(const RankedCommand& command) : command_(command), cpus_(own_cpus()) {
    memory_ = make_memory("halfbyte-ranks", shared_memory_bytes(command.ranks));
    ::sigemptyset(&signals_);
    for (const int signal : kPassedOn) {
      struct sigaction now {};
      if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) ::sigaddset(&signals_, signal);
    }
    ::sigaddset(&signals_, SIGCHLD);
    ::signal(SIGCHLD, SIG_DFL);  // ignored, it would have children vanish
    ::sigprocmask(SIG_BLOCK, &signals_, &before_);
  }

  int run() {
    try {
      for (int rank = 0; rank < command_.ranks; ++rank) start(rank);
    } catch (...) {
      end_all(SIGKILL);
      for (const Process& process : processes_) ::waitpid(process.id, nullptr, 0);
      throw;
    }
    while (running_ > 0) {
      wait_for_signal();
      while (reap()) continue;
      if (kill_at_ && Clock::now() >= *kill_at_) {
        is_killed_ = true;
        end_all(SIGKILL);
      }
    }
    if (failed_) show_messages(*failed_);
    return status_;
  }

 private:
  struct Process {
    pid_t id = 0;  // 0: it has ended
    int messages = -1;
  };

  void start(int rank) {
    Process process;
    if (rank > 0) process.messages = make_memory("halfbyte-messages", 0);
    const pid_t parent = ::getpid();
    process.id = ::fork();
    if (process.id < 0) fail("starting a rank");
    if (process.id == 0) become_rank(rank, process.messages, parent);
    processes_.push_back(process);
    ++running_;
  }

  [[noreturn]] void become_rank(int rank, int messages, pid_t parent) const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it was ended before that
    set_environment(rank);
    keep_to_cores(rank);
    if (rank > 0) {
      for (const int signal : kPassedOn) {
        if (!command_.is_each_asked_to_end) ::signal(signal, SIG_IGN);  // they stop when the first one has
      }
      const int nothing = ::open("/dev/null", O_RDWR);
      ::dup2(nothing, STDIN_FILENO);
      ::dup2(nothing, STDOUT_FILENO);
      ::dup2(messages, STDERR_FILENO);
    }
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    const std::string program = executable_path().string();
    std::vector<std::string> words = command_.words;
    words.insert(words.begin(), program);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execv(program.c_str(), arguments.data());
    ::_exit(127);
  }

  void set_environment(int rank) const {
    const auto set = [](const char* name, int value) {
      ::setenv(name, std::to_string(value).c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
    };
    const RankedNetwork& network = command_.network;
    set("RANK", network.node * command_.ranks + rank);
    set("LOCAL_RANK", rank);
    set("WORLD_SIZE", network.nodes * command_.ranks);
    set("LOCAL_WORLD_SIZE", command_.ranks);
    set_network(network);
    if (network.host.empty() || network.nodes > 1)
      set(kRanksMemory, memory_);
    else
      ::unsetenv(kRanksMemory);  // NOLINT(concurrency-mt-unsafe): one thread
    set(kRanksTimeout, command_.timeout);
    set(kRanksPipeline, command_.pipeline);
    ::setenv(kRanksReduceDtype, command_.reduce_dtype.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
    // What this process was to have, by its user's word or by its cores (usable_cores.h).
    const char* const threads = std::getenv("OMP_NUM_THREADS");  // NOLINT(concurrency-mt-unsafe)
    set("OMP_NUM_THREADS", std::max(1, (threads ? std::atoi(threads) : usable_cores()) / command_.ranks));
  }

  static void set_network(const RankedNetwork& network) {
    const auto unset = [](const char* name) { ::unsetenv(name); };  // NOLINT(concurrency-mt-unsafe): one thread
    const auto set = [](const char* name, const std::string& value) {
      if (!value.empty()) ::setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    };
    // Of a launcher above this one, whose ranks these are not.
    unset("TORCHELASTIC_USE_AGENT_STORE");
    unset("TORCHELASTIC_RESTART_COUNT");
    if (network.host.empty()) {
      unset(kMasterHost);
      unset(kMasterPort);
      return;
    }
    set(kMasterHost, network.host);
    set(kMasterPort, std::to_string(network.port));
    set(kRanksInterface, network.interface);
    set(kRanksSecret, network.secret_file);
  }

  // Where CPUs are cores, neighbours, which share caches and memory.
  void keep_to_cores(int rank) const {
    const auto all = static_cast<int>(cpus_.size());
    if (all < command_.ranks || all != usable_cores()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = all * rank / command_.ranks; i < all * (rank + 1) / command_.ranks; ++i)
      CPU_SET(cpus_[static_cast<std::size_t>(i)], &set);
    ::sched_setaffinity(0, sizeof set, &set);
  }

  void wait_for_signal() {
    const timespec slice{0, 200'000'000};
    siginfo_t info{};
    const int signal = ::sigtimedwait(&signals_, &info, &slice);
    if (signal < 0 || signal == SIGCHLD) return;
    // A terminal's Ctrl-C may be for an answer alone: the rank that leads has it too, and knows.
    const bool is_of_terminal = info.si_code == SI_KERNEL;
    const bool is_at_first = command_.is_led && command_.network.node == 0 && processes_.front().id != 0;
    if (is_at_first && is_of_terminal && signal == SIGINT) {
      was_interrupted_ = true;
      return;
    }
    // That rank goes on for as long as it takes, until it is told twice. Those of other machines end when it lets them
    // go.
    const bool is_again = std::exchange(is_stopping_, true) && signal != SIGHUP;  // which a terminal's end sends twice
    const bool is_word = command_.is_led && (!is_again || is_of_terminal);
    end_in_time(is_word, is_again);
    if (processes_.front().id == 0) return note_stopped(128 + SIGINT);
    // A terminal's reaches them by itself, the first time.
    if (!is_of_terminal || (is_again && command_.is_each_asked_to_end))
      pass_on(signal, is_again ? kInsistedSignal : kPassedOnSignal);
  }

  // After a signal. Who has something to save or to answer first takes as long as it takes, until it is told twice.
  void end_in_time(bool is_word, bool is_again) {
    if (is_word ? command_.network.node == 0 : command_.is_each_asked_to_end && !is_again) return;
    const auto end = Clock::now() + (is_word ? std::chrono::seconds(command_.timeout) : kGrace);
    kill_at_ = std::min(kill_at_.value_or(end), end);
  }

  bool reap() {
    int status = 0;
    const pid_t id = ::waitpid(-1, &status, WNOHANG);
    if (id <= 0) return false;
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      if (processes_[rank].id != id) continue;
      processes_[rank].id = 0;
      --running_;
      const bool is_by_signal = WIFSIGNALED(status);
      note_end(static_cast<int>(rank), is_by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status), is_by_signal);
    }
    return true;
  }

  void note_end(int rank, int status, bool is_by_signal) {
    if (rank == 0 && (is_stopping_ || (was_interrupted_ && status == 128 + SIGINT))) return note_stopped(status);
    if (rank == 0 && failed_ && !is_killed_) has_first_said_ = status == status_ || (command_.is_led && status == 1);
    if (status == 0 || failed_ || is_stopping_) return;
    // It was told alone, and all end with it: the first has to save.
    if (command_.is_each_asked_to_end && rank > 0 && status == static_cast<int>(ExitStatus::kInterrupted)) {
      is_stopping_ = true;
      pass_on(SIGTERM, kPassedOnSignal);
      if (processes_.front().id == 0) note_stopped(status);
      return;
    }
    failed_ = rank;
    status_ = status;
    is_by_signal_ = is_by_signal;
    // Nothing that a rank has is lost so.
    kill_at_ = Clock::now();
    if (rank > 0 && !is_by_signal) *kill_at_ += kSameFailure;
    if (rank == 0 || !command_.is_led || processes_.front().id == 0) return;
    *kill_at_ += kLastWords;
    send(processes_.front(), SIGTERM, kPassedOnSignal);
  }

  void note_stopped(int status) {
    status_ = status;
    end_all(SIGKILL);
  }

  static void send(const Process& process, int signal, int how) {
    if (process.id > 0) ::sigqueue(process.id, signal, {.sival_int = how});
  }

  // To the first rank, or to all where each is asked to end.
  void pass_on(int signal, int how) const {
    for (const Process& process : processes_) {
      send(process, signal, how);
      if (!command_.is_each_asked_to_end) return;
    }
  }

  void end_all(int signal) const {
    for (const Process& process : processes_) {
      if (process.id > 0) ::kill(process.id, signal);
    }
  }

  // Of a rank that is not the first: it has been silent so far. Where both failed alike, the first has said why.
  void show_messages(int rank) const {
    if (has_first_said_) return;
    std::string text = rank > 0 ? messages_of(processes_[static_cast<std::size_t>(rank)]) : "";
    if (is_by_signal_ || (text.empty() && rank > 0)) {
      text += "halfbyte: rank " + std::to_string(command_.network.node * command_.ranks + rank) +
              (is_by_signal_ ? " was ended by signal " + std::to_string(status_ - 128)
                             : " ended with status " + std::to_string(status_)) +
              "\n";
    }
    static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
  }

  // The last of them.
  static std::string messages_of(const Process& process) {
    struct stat found {};
    if (::fstat(process.messages, &found) != 0) return "";
    const auto size = static_cast<std::size_t>(found.st_size), shown = std::min(size, kMostMessages);
    std::string text(shown, '\0');
    const ssize_t read = ::pread(process.messages, text.data(), shown, static_cast<off_t>(size - shown));
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(read, 0)));
    return text;
  }

  const RankedCommand& command_;
  std::vector<int> cpus_;
  int memory_ = -1;
  sigset_t signals_{}, before_{};
  std::vector<Process> processes_;
  int running_ = 0;
  std::optional<int> failed_;  // the rank that did first
  int status_ = 0;
  bool is_by_signal_ = false;    // that one was
  bool has_first_said_ = false;  // why another failed, since it failed too
  bool is_killed_ = false;
  bool is_stopping_ = false;
  bool was_interrupted_ = false;  // the first rank was, by a terminal
  std::optional<Clock::time_point> kill_at_;
};

}  // namespace

int run_ranks(const RankedCommand& command) { return RankProcesses(command).run(); }

}  // namespace halfbyte::cli
