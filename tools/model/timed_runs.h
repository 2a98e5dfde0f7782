// Times prefill and decode of one model: what `bench` repeats.
#pragma once

#include <cstdint>
#include <vector>

#include <halfbyte/causal_lm.h>

#include "models/modules/session.h"

namespace halfbyte::cli {

struct RunSizes {
  std::int64_t batch = 1;          // sequences side by side
  std::int64_t depth = 0;          // tokens of each before the prompt, which are not timed
  std::int64_t prompt_tokens = 0;  // of each
  std::int64_t gen_tokens = 0;     // of each
};

// Units: seconds.
struct RunTimes {
  double prefill;  // up to the first token after the prompt
  double decode;   // of gen_tokens more
};

double median(std::vector<double> values);

// Reads the depth when it is made; every run starts there again. The caller holds InferenceMode. Errors: as
// CausalLM::hidden().
class TimedRuns {
 public:
  TimedRuns(const models::CausalLM& model, const RunSizes& sizes);
  RunTimes run();
  // Of one value of keys and values. Units: bytes.
  double cache_value_bytes();

 private:
  const models::CausalLM& model_;
  RunSizes sizes_;
  models::Session session_;
};

}  // namespace halfbyte::cli
