// Times prefill and decode of one model: what `bench` repeats. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <halfbyte/load_low_bit.h>
#include <halfbyte/profile.h>

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

// Where those went. Events are kept of the prefill and of a few steps.
struct RunProfile {
  ProfileRecord prefill, decode;
};

double median(std::vector<double> values);

// Reads the depth when it is made; every run starts there again. Errors: as CausalLM::hidden().
class TimedRuns {
 public:
  TimedRuns(const Model& model, const RunSizes& sizes);  // the model outlives it
  ~TimedRuns();
  RunTimes run(RunProfile* profile = nullptr);  // null: nobody asks
  // Of one value of keys and values; 0: no layer keeps any. Units: bytes.
  double cache_value_bytes() const;

 private:
  struct State;
  RunSizes sizes_;
  std::unique_ptr<State> state_;
};

}  // namespace halfbyte::cli
