// The program `halfbyte-model`: verbs that need LibTorch. `halfbyte` starts it; nobody else need know it.
#include "tools/cli/verb.h"
#include "tools/model/model_verbs.h"

int main(int argc, char** argv) {
  using namespace halfbyte::cli;
  constexpr VerbRow kRows[] = {{"generate", prepare_generate},
                               {"perplexity", prepare_perplexity},
                               {"bench", prepare_bench},
                               {"doctor", prepare_doctor}};
  return run_program(kRows, argc, argv);
}
