// --speculate and --draft, of the verbs that make text.
#pragma once

#include <cstdint>
#include <string>

namespace halfbyte::cli {

class OptionParser;

struct SpeculationWords {
  std::string speculate = "none";
  std::string draft;  // a checkpoint; empty: none

  bool looks_up() const { return speculate == "lookup"; }
};

void declare_speculation(OptionParser& parser, SpeculationWords& words);

// "; 34 of 40 guesses were right"; empty where there were none.
std::string guesses_text(std::int64_t guessed, std::int64_t right);

}  // namespace halfbyte::cli
