// What a host has set is as it was after a model was loaded, run and let go; and what a child of fork() may do.
#include "tests/catch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cfenv>
#include <clocale>
#include <csignal>
#include <locale>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/error.h>
#include <halfbyte/load_low_bit.h>

#include "tests/loader/quantized.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

const GenerateOptions kGreedy{.max_gen_len = 12, .temperature = 0, .ignore_eos = true};

std::vector<Generation> load_and_generate(const char* policy, const GenerateOptions& options = kGreedy) {
  const Model model = load_low_bit(tests::quantized_tiny_llama(), {.dtype = DtypePolicy::parse(policy)});
  return model.generate({{1, 300, 301, 302}, {1, 500}}, options);
}

// All that a process or a thread has set and a library could change, as text that a failing test shows.
std::vector<std::string> host_state() {
  std::vector<std::string> out = {
      "threads " + std::to_string(at::get_num_threads()),
      "interop threads " + std::to_string(at::get_num_interop_threads()),
      "gradients " + std::to_string(c10::GradMode::is_enabled()),
      "inference " + std::to_string(c10::InferenceMode::is_enabled()),
      "autocast " + std::to_string(at::autocast::is_autocast_enabled(at::kCPU)),
      "autocast dtype " + std::string(c10::toString(at::autocast::get_autocast_dtype(at::kCPU))),
      "default dtype " + std::string(at::get_default_dtype().name()),
      "deterministic " + std::to_string(at::globalContext().deterministicAlgorithms()),
      "rounding " + std::to_string(std::fegetround()),
      "C locale " + std::string(std::setlocale(LC_ALL, nullptr)),
      "C++ locale " + std::locale().name(),
      "terminate " + std::to_string(reinterpret_cast<std::uintptr_t>(std::get_terminate()))};
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action{};
    if (sigaction(signal, nullptr, &action) != 0) continue;
    out.push_back("signal " + std::to_string(signal) + " handled by " +
                  std::to_string(reinterpret_cast<std::uintptr_t>(action.sa_handler)) + ", blocked " +
                  std::to_string(sigismember(&blocked, signal)));
  }
  // Denormals flushed or not.
  volatile float tiny = 1e-38F;
  out.push_back("denormals " + std::to_string(static_cast<bool>(tiny * 0.01F > 0)));
  return out;
}

TEST_CASE("a host's threads, modes, signals and locale are as they were after loading and generating", "[lifetime]") {
  load_and_generate("float32");  // what libraries set up once in a process has been
  const int threads = at::get_num_threads();
  at::set_num_threads(threads == 3 ? 2 : 3);
  {
    const std::vector<std::string> before = host_state();
    for (const char* policy : {"amp:bfloat16", "amp:float16", "half", "bfloat16", "float32", "original"}) {
      INFO(policy);
      load_and_generate(policy);
      CHECK(host_state() == before);
    }
  }
  {
    const at::NoGradGuard no_gradients;
    at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const std::vector<std::string> before = host_state();
    try {
      load_and_generate("bfloat16");
    } catch (const Error&) {  // two dtypes met, which is said; the state is as it was all the same
    }
    CHECK(host_state() == before);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  at::set_num_threads(threads);
}

TEST_CASE("a host's modes are as they were after an error and after a stop", "[lifetime]") {
  const std::vector<std::string> before = host_state();
  CHECK_THROWS(load_low_bit(tests::data("tiny-llama") / "no such file"));
  CHECK_THROWS(load_and_generate("float32", {.temperature = -1}));
  GenerateOptions throwing = kGreedy;
  throwing.on_token = [](std::size_t, std::int64_t) -> bool { throw std::runtime_error("mine"); };
  CHECK_THROWS_WITH(load_and_generate("float32", throwing), "mine");
  std::stop_source stop;
  stop.request_stop();
  GenerateOptions stopped = kGreedy;
  stopped.stop = stop.get_token();
  CHECK(load_and_generate("float32", stopped)[0].finish_reason == FinishReason::kCancelled);
  CHECK(host_state() == before);
}

TEST_CASE("a host's own decimal comma changes no token", "[lifetime]") {
  const std::vector<Generation> wanted = load_and_generate("float32");
  const std::string before = std::setlocale(LC_ALL, nullptr);
  for (const char* name : {"de_DE.UTF-8", "tr_TR.UTF-8", "C.UTF-8"}) {
    if (!std::setlocale(LC_ALL, name)) continue;  // those that this machine has
    CHECK(load_and_generate("float32")[0].tokens == wanted[0].tokens);
    CHECK(std::string(std::setlocale(LC_ALL, nullptr)) == name);
  }
  std::setlocale(LC_ALL, before.c_str());
}

// What `work` says in a child of fork(), which has this thread alone; -1: it did not end in time.
template <class Work>
int status_in_child(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(work() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The threads of OpenMP's team do not exist in a child, and GNU's runtime waits for them: a child works on one thread.
TEST_CASE("a child of fork generates from a loaded model, and loads its own, on one thread", "[lifetime]") {
  const Model model = load_low_bit(tests::quantized_tiny_llama());
  const TokenIds wanted = model.generate({{1, 300, 301, 302}}, kGreedy)[0].tokens;
  const auto in_child = [&] {
    at::set_num_threads(1);
    const Model own = load_low_bit(tests::quantized_tiny_llama());
    return model.generate({{1, 300, 301, 302}}, kGreedy)[0].tokens == wanted &&
           own.generate({{1, 300, 301, 302}}, kGreedy)[0].tokens == wanted;
  };
  CHECK(status_in_child(in_child) == 0);
  CHECK(model.generate({{1, 300, 301, 302}}, kGreedy)[0].tokens == wanted);
}

}  // namespace
}  // namespace halfbyte
