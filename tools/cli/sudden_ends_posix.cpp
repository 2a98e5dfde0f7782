#include "tools/cli/sudden_ends.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>
#include <string_view>
#include <system_error>

#include <halfbyte/error.h>

#include "loader/files/mappings.h"
#include "loader/files/printable.h"
#include "tools/cli/errors.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/platform.h"

namespace halfbyte::cli {
namespace {

// What the handlers below do must be async-signal-safe, and take no memory, of which there may be none.

// One line, in one piece; what is too long is cut.
void write_line(std::initializer_list<const char*> words) noexcept {
  char line[4096];
  std::size_t size = 0;
  for (const char* word : words) {
    for (; *word != '\0' && size + 1 < sizeof line; ++word) line[size++] = *word;
  }
  line[size++] = '\n';
  static_cast<void>(!::write(STDERR_FILENO, line, size));
}

// Of several threads that come to an end together, one says so.
[[noreturn]] void end(std::initializer_list<const char*> words, ExitStatus status) noexcept {
  static std::atomic_flag is_said;
  while (is_said.test_and_set()) ::pause();
  write_line(words);
  ::_exit(static_cast<int>(status));
}

constexpr const char* kOutOfMemory =
    "halfbyte: out of memory; allow more (`ulimit -v` shows the limit), or use a smaller model";

// LibTorch throws its own where memory ran out.
bool speaks_of_memory(const char* text) noexcept {
  return std::strstr(text, "can't allocate memory") || std::strstr(text, "annot allocate memory");
}

[[noreturn]] void on_terminate() noexcept {
  const std::exception_ptr error = std::current_exception();
  if (!error) end({"halfbyte: internal error: please report it"}, ExitStatus::kFailed);
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    end({kOutOfMemory}, ExitStatus::kNoResources);
  } catch (const std::system_error& system) {
    if (system.code() == std::errc::resource_unavailable_try_again)
      end({"halfbyte: ", kNoThreads}, ExitStatus::kNoResources);
    end({"halfbyte: internal error: please report it: ", system.what()}, ExitStatus::kFailed);
  } catch (const std::exception& other) {
    if (speaks_of_memory(other.what())) end({kOutOfMemory}, ExitStatus::kNoResources);
    end({"halfbyte: internal error: please report it: ", other.what()}, ExitStatus::kFailed);
  } catch (...) {
    end({"halfbyte: internal error: please report it"}, ExitStatus::kFailed);
  }
}

bool is_shorter(const files::Mapping& mapping) noexcept {
  struct stat status {};
  return ::stat(mapping.path, &status) != 0 || static_cast<std::uint64_t>(status.st_size) < mapping.size_bytes;
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const bool is_access = info->si_code > 0;
  const files::Mapping mapping = is_access ? files::mapping_at(info->si_addr) : files::Mapping{};
  if (!mapping.path) {  // nothing of ours: it happens again on return, and ends the process as it would have
    std::signal(signal, SIG_DFL);
    if (!is_access) static_cast<void>(::raise(signal));
    return;
  }
  if (is_shorter(mapping))
    end({"halfbyte: ", mapping.printable,
         ": the file became shorter while it was in use; copy it again, and replace "
         "checkpoints as a whole"},
        ExitStatus::kBadData);
  end({"halfbyte: ", mapping.printable, ": its disk does not give what is in it; copy it from elsewhere"},
      ExitStatus::kFailed);
}

bool is_limited(struct rlimit& limit) noexcept {
  return ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

// Under a limit of address space a library that does not look whether it got its memory (oneDNN), and a stack that may
// not grow, end here.
void on_bad_access(int signal, siginfo_t* info, void*) {
  if (info->si_code > 0)
    end({"halfbyte: out of memory: something used what it did not get; allow more (`ulimit -v` shows the limit)"},
        ExitStatus::kNoResources);
  std::signal(signal, SIG_DFL);
  static_cast<void>(::raise(signal));
}

// On a stack of its own, since the main thread's may be what is full.
void watch_bad_accesses() noexcept {
  static char stack[1 << 16];
  stack_t own{};
  own.ss_sp = stack;
  own.ss_size = sizeof stack;
  ::sigaltstack(&own, nullptr);
  struct sigaction action{};
  action.sa_sigaction = on_bad_access;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGSEGV, &action, nullptr);
}

// Before the libraries that this program loads, LibTorch among them, start what they have to start.
[[gnu::used, gnu::section(".preinit_array")]] void (*const install_before_libraries)() = [] {
  std::set_terminate(on_terminate);
};

}  // namespace

void install_sudden_ends() noexcept {
  std::set_terminate(on_terminate);
  std::signal(SIGXFSZ, SIG_IGN);
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
  struct rlimit limit{};
  if (is_limited(limit)) watch_bad_accesses();
}

// What the dynamic loader says where there is no room for a library is no line of ours, and not its status.
void check_room_for(const std::filesystem::path& program) {
  struct rlimit limit {};
  if (!is_limited(limit)) return;
  if (run_to_end(program, {"--version"}).exit_status == 0) return;
  throw Error(ErrorCode::kNoResources, "out of memory: LibTorch does not start in the " +
                                           files::printable_bytes(limit.rlim_cur) +
                                           " of address space that this process may have; allow more (`ulimit -v`)");
}

void check_room_left() {
  constexpr std::uint64_t kRoom = std::uint64_t{128} << 20;  // a thread's heap is 64 MiB of address space at once
  struct rlimit limit{};
  if (!is_limited(limit)) return;
  void* const room = ::mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room != MAP_FAILED) {
    ::munmap(room, kRoom);
    return;
  }
  throw Error(ErrorCode::kNoResources, "out of memory: less than " + files::printable_bytes(kRoom) +
                                           " are left of the " + files::printable_bytes(limit.rlim_cur) +
                                           " of address space that this process may have; allow more (`ulimit -v`)");
}

}  // namespace halfbyte::cli
