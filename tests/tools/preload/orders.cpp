#include "tests/tools/preload/orders.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace preload {
namespace {

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

// Not by the open() of this library, which would wait for the very constructor that calls this.
int log_file(const char* variable) {
  const char* path = std::getenv(variable);
  if (!path) return -1;
  return real<int(const char*, int, ...)>("open")(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

struct Orders {
  long crash_at = 0;
  When when = When::kNever;
  int crash_log = log_file("HALFBYTE_CRASH_COUNT");
  long fault_at = -1;
  int error = 0;  // 0: short
  int fault_log = log_file("HALFBYTE_FAULT_COUNT");

  Orders() {
    if (const char* text = std::getenv("HALFBYTE_CRASH_AT")) crash_at = std::atol(text);
    if (const char* text = std::getenv("HALFBYTE_CRASH_WHEN")) when = when_of(*text);
    if (const char* text = std::getenv("HALFBYTE_FAULT_AT")) fault_at = std::atol(text);
    if (const char* text = std::getenv("HALFBYTE_FAULT")) error = std::atoi(text);
  }
};

const Orders& orders() {
  static const Orders instance;
  return instance;
}

void put(int file, const std::string& text) {
  if (file >= 0)
    static_cast<void>(real<ssize_t(int, const void*, std::size_t)>("write")(file, text.data(), text.size()));
}

[[noreturn]] void die() {
  for (;;) ::kill(::getpid(), SIGKILL);
}

std::string link_of(const char* link) {
  char target[PATH_MAX];
  const ssize_t size = real<ssize_t(const char*, char*, std::size_t)>("readlink")(link, target, sizeof target);
  return size < 0 ? std::string() : std::string(target, static_cast<std::size_t>(size));
}

}  // namespace

std::string path_of(const char* path) { return path_of(AT_FDCWD, path); }

std::string path_of(int descriptor) { return link_of(("/proc/self/fd/" + std::to_string(descriptor)).c_str()); }

std::string path_of(int directory, const char* path) {
  if (*path == '/') return path;
  return (directory == AT_FDCWD ? link_of("/proc/self/cwd") : path_of(directory)) + "/" + path;
}

Call::Call(const char* name, Effect effect) {
  static std::atomic<long> changes{0};
  static std::atomic<long> calls{0};
  const int before = errno;
  is_faulty_ = ++calls == orders().fault_at || orders().fault_at == 0;
  put(orders().fault_log, std::string("\n") + name);
  if (effect == Effect::kChanges) {
    is_killed_ = ++changes == orders().crash_at;
    put(orders().crash_log, std::string(name) + "\n");
  }
  if (is_killed_ && orders().when == When::kBefore) die();
  if (is_killed_ && orders().when == When::kStop) ::kill(::getpid(), SIGSTOP);
  errno = before;
}

Call::~Call() {
  if (is_killed_ && orders().when != When::kStop) die();
}

bool Call::is_logged() { return orders().fault_log >= 0; }

void Call::log_path(const char* path) {
  const int before = errno;
  put(orders().fault_log, std::string("\t") + path);
  errno = before;
}

bool Call::fails() const noexcept {
  if (!is_faulty_ || orders().error == 0) return false;
  errno = orders().error;
  return true;
}

std::size_t Call::part(std::size_t size) const noexcept {
  const bool is_torn = is_killed_ && orders().when == When::kTorn;
  if (is_torn) return size / 2;
  return is_faulty_ && orders().error == 0 && size > 1 ? size / 2 : size;
}

}  // namespace preload
