// Kills the process it is preloaded into at a chosen call that changes files. For crash_test.py and race_test.py.
//
// HALFBYTE_CRASH_AT=N and HALFBYTE_CRASH_WHEN=before|torn|after: the N-th such call (from 1) is not made, or made, or,
// if it writes data, made for half the bytes; then the process ends as kill -9 ends it. HALFBYTE_CRASH_WHEN=stop: it
// stops before the call, and goes on with SIGCONT. HALFBYTE_CRASH_COUNT=FILE: every call's name goes there, one a line.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

enum class When { kNever, kBefore, kTorn, kAfter, kStop };

When when_of(char letter) {
  switch (letter) {
    case 'b':
      return When::kBefore;
    case 't':
      return When::kTorn;
    case 's':
      return When::kStop;
    default:
      return When::kAfter;
  }
}

struct Orders {
  long at = 0;
  When when = When::kNever;
  int count_file = -1;

  Orders() {
    const char* at_text = std::getenv("HALFBYTE_CRASH_AT");
    const char* when_text = std::getenv("HALFBYTE_CRASH_WHEN");
    const char* file = std::getenv("HALFBYTE_CRASH_COUNT");
    if (at_text) at = std::atol(at_text);
    if (when_text) when = when_of(*when_text);
    // Not by the open() below, which would wait for this very constructor.
    if (file)
      count_file = real<int(const char*, int, ...)>("open")(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  }
};

const Orders& orders() {
  static const Orders instance;
  return instance;
}

[[noreturn]] void die() {
  for (;;) ::kill(::getpid(), SIGKILL);
}

// One counted call: dies before it in the constructor, after it in the destructor.
class Call {
 public:
  explicit Call(const char* name) {
    static std::atomic<long> calls{0};
    is_chosen_ = ++calls == orders().at;
    if (orders().count_file >= 0) {
      char line[64];
      const std::size_t length = std::strlen(name);
      std::memcpy(line, name, length);
      line[length] = '\n';
      static_cast<void>(real<ssize_t(int, const void*, std::size_t)>("write")(orders().count_file, line, length + 1));
    }
    if (is_chosen_ && orders().when == When::kBefore) die();
    if (is_chosen_ && orders().when == When::kStop) ::kill(::getpid(), SIGSTOP);
  }
  ~Call() {
    if (is_chosen_ && orders().when != When::kStop) die();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  // How many of so many bytes are to be written.
  std::size_t part(std::size_t size) const { return is_chosen_ && orders().when == When::kTorn ? size / 2 : size; }

 private:
  bool is_chosen_ = false;
};

}  // namespace

#define HALFBYTE_COUNTED(type, name, parameters, arguments) \
  type name parameters {                                    \
    static const auto call = real<type parameters>(#name);  \
    const Call counted(#name);                              \
    return call arguments;                                  \
  }

extern "C" {

HALFBYTE_COUNTED(ssize_t, write, (int fd, const void* data, std::size_t size), (fd, data, counted.part(size)))
HALFBYTE_COUNTED(ssize_t, pwrite, (int fd, const void* data, std::size_t size, off_t at),
                 (fd, data, counted.part(size), at))
HALFBYTE_COUNTED(ssize_t, pwrite64, (int fd, const void* data, std::size_t size, off64_t at),
                 (fd, data, counted.part(size), at))
HALFBYTE_COUNTED(int, fsync, (int fd), (fd))
HALFBYTE_COUNTED(int, fdatasync, (int fd), (fd))
HALFBYTE_COUNTED(int, ftruncate, (int fd, off_t size), (fd, size))
HALFBYTE_COUNTED(int, ftruncate64, (int fd, off64_t size), (fd, size))
HALFBYTE_COUNTED(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
HALFBYTE_COUNTED(int, fallocate64, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size))
HALFBYTE_COUNTED(int, rename, (const char* from, const char* to), (from, to))
HALFBYTE_COUNTED(int, renameat, (int from_fd, const char* from, int to_fd, const char* to), (from_fd, from, to_fd, to))
HALFBYTE_COUNTED(int, renameat2, (int from_fd, const char* from, int to_fd, const char* to, unsigned flags),
                 (from_fd, from, to_fd, to, flags))
HALFBYTE_COUNTED(int, mkdir, (const char* path, mode_t mode), (path, mode))
HALFBYTE_COUNTED(int, mkdirat, (int fd, const char* path, mode_t mode), (fd, path, mode))
HALFBYTE_COUNTED(int, rmdir, (const char* path), (path))
HALFBYTE_COUNTED(int, unlink, (const char* path), (path))
HALFBYTE_COUNTED(int, unlinkat, (int fd, const char* path, int flags), (fd, path, flags))
HALFBYTE_COUNTED(int, remove, (const char* path), (path))

// Opening counts where it makes a file.
#define HALFBYTE_OPEN(name)                                           \
  int name(const char* path, int flags, ...) {                        \
    static const auto call = real<int(const char*, int, ...)>(#name); \
    if ((flags & O_CREAT) == 0) return call(path, flags);             \
    va_list rest;                                                     \
    va_start(rest, flags);                                            \
    const mode_t mode = va_arg(rest, mode_t);                         \
    va_end(rest);                                                     \
    const Call counted(#name);                                        \
    return call(path, flags, mode);                                   \
  }
HALFBYTE_OPEN(open)
HALFBYTE_OPEN(open64)

// Of the calls made by number, the renaming one.
long syscall(long number, ...) {
  static const auto call = real<long(long, ...)>("syscall");
  va_list rest;
  va_start(rest, number);
  long words[6];
  for (long& word : words) word = va_arg(rest, long);
  va_end(rest);
  const auto make = [&] { return call(number, words[0], words[1], words[2], words[3], words[4], words[5]); };
  if (number != SYS_renameat2) return make();
  const Call counted("syscall(renameat2)");
  return make();
}

}  // extern "C"
