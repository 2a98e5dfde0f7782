// The program `halfbyte`: verbs that need no LibTorch, or not for all that they do. The others are in halfbyte-model (tools/model/).
#include "tools/cli/verb.h"
#include "tools/verbs/verbs.h"

int main(int argc, char** argv) {
  using namespace halfbyte::cli;
  constexpr VerbRow kRows[] = {{"quantize", prepare_quantize},
                               {"inspect", prepare_inspect},
                               {"verify", prepare_verify},
                               {"dequantize", prepare_dequantize},
                               {"diff", prepare_diff},
                               {"export", prepare_export},
                               {"merge", prepare_merge},
                               {"doctor", prepare_doctor},
                               {"generate", prepare_generate},
                               {"launch", prepare_launch},
                               {"synth", prepare_synth},
                               {"tokenize", prepare_tokenize},
                               {"completion", prepare_completion},
                               {"man", prepare_man}};
  return run_program(kRows, argc, argv);
}
