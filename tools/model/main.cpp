// The program `halfbyte-model`: verbs that need LibTorch. `halfbyte` starts it; nobody else need know it.
#include <cstdlib>

#include "tools/cli/verb.h"
#include "tools/model/launched_group.h"
#include "tools/model/model_verbs.h"

namespace {

// Everything is flushed by now. What would be left is to take LibTorch's tables of operators apart, piece by piece, for
// nobody: 90 of a short run's 350 ms. A leak checker runs after that, so its build does it.
[[noreturn]] void end(int status) {
#ifdef __SANITIZE_ADDRESS__
  std::exit(status);
#else
  std::_Exit(status);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  using namespace halfbyte::cli;
  constexpr VerbRow kRows[] = {
      {"quantize", prepare_quantize}, {"generate", prepare_generate},     {"chat", prepare_chat},
      {"serve", prepare_serve},       {"perplexity", prepare_perplexity}, {"evaluate", prepare_evaluate},
      {"bench", prepare_bench},       {"doctor", prepare_doctor},         {"finetune", prepare_finetune}};
  const int status = run_program(kRows, argc, argv);
  leave_launched_group();
  end(status);
}
