// What `synth` does, whoever asks for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/verbs/caller.h"

namespace halfbyte::cli {

struct SynthWords {
  std::string destination;
  std::string like = "llama-1.1b";
  std::string config;  // instead; empty: none
  std::int64_t layers = 0;
  std::string experts = "usual";  // one of experts_names()
  std::string dtype;              // empty: the config's, or bfloat16
  std::uint64_t seed = 0;
  bool overwrite = false;
};

std::vector<std::string> experts_names();

// Writes the destination. Errors: as convert::synth().
Outcome synthesise(const SynthWords& words, const Caller& caller);

}  // namespace halfbyte::cli
