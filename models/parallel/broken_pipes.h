// Gloo writes to sockets without MSG_NOSIGNAL: a rank that goes would end those that write to it by SIGPIPE, without a
// word.
#pragma once

#include <cerrno>
#include <csignal>
#include <ctime>

namespace halfbyte::models {

// While one lives, what this thread writes to nobody is an error and no signal, and so in all threads that it starts.
class BrokenPipesAreErrors {
 public:
  BrokenPipesAreErrors() noexcept {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t waiting;
    ::sigemptyset(&waiting);
    ::sigpending(&waiting);
    was_waiting_ = ::sigismember(&waiting, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~BrokenPipesAreErrors() {
    const timespec now{};
    // The one of this thread's writes, if there was any.
    while (!was_waiting_ && ::sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BrokenPipesAreErrors(const BrokenPipesAreErrors&) = delete;
  BrokenPipesAreErrors& operator=(const BrokenPipesAreErrors&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_waiting_ = false;
};

}  // namespace halfbyte::models
