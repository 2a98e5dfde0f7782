#include "models/parallel/broken_pipes.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "tests/catch.h"

namespace halfbyte::models {
namespace {

// What writing to nobody ends with; by default a signal ends this program.
int error_of_write() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return -1;
  ::close(ends[0]);
  errno = 0;
  const auto written = ::write(ends[1], "x", 1);
  const int error = written < 0 ? errno : 0;
  ::close(ends[1]);
  return error;
}

bool is_waiting() {
  sigset_t waiting;
  ::sigpending(&waiting);
  return ::sigismember(&waiting, SIGPIPE) == 1;
}

bool is_blocked() {
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return ::sigismember(&mask, SIGPIPE) == 1;
}

}  // namespace

TEST_CASE("broken pipes are errors where one says so, and nothing is left of them", "[ranks]") {
  const bool was_blocked = is_blocked();
  int error = 0, of_thread = 0;
  bool was_waiting = false;
  {
    const BrokenPipesAreErrors here;
    error = error_of_write();
    was_waiting = is_waiting();
    std::thread([&] { of_thread = error_of_write(); }).join();
  }
  CHECK(error == EPIPE);
  CHECK(of_thread == EPIPE);
  CHECK(was_waiting);
  CHECK_FALSE(is_waiting());
  CHECK(is_blocked() == was_blocked);
}

}  // namespace halfbyte::models
