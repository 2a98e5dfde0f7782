#include "tests/tools/preload/recording.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>

#include "tests/tools/preload/orders.h"

namespace preload {
namespace {

int file() {
  static const int descriptor = [] {
    const char* path = std::getenv("HALFBYTE_RECORD");
    if (!path) return -1;
    return real<int(const char*, int, ...)>("open")(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  }();
  return descriptor;
}

}  // namespace

bool is_recording() { return file() >= 0; }

void record(const char* what, const std::string& path, const std::string& rest) {
  if (!is_recording()) return;
  static std::mutex mutex;
  const int before = errno;
  const std::lock_guard lock(mutex);
  const std::string line = std::string(what) + "\t" + path + (rest.empty() ? "" : "\t" + rest) + "\n";
  // One call a line, so that lines stay whole. A record that is cut short would let the test pass with less in it.
  const auto put = real<ssize_t(int, const void*, std::size_t)>("write")(file(), line.data(), line.size());
  if (put != static_cast<ssize_t>(line.size())) std::abort();
  errno = before;
}

void record_write(const std::string& path, std::uint64_t offset, std::span<const unsigned char> data) {
  if (!is_recording()) return;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string rest = std::to_string(offset) + "\t";
  rest.reserve(rest.size() + 2 * data.size());
  for (const unsigned char byte : data) {
    rest += kDigits[byte >> 4];
    rest += kDigits[byte & 15];
  }
  record("write", path, rest);
}

}  // namespace preload
