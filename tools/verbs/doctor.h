// What `doctor` found, before it is printed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/cli/platform.h"
#include "tools/cli/trial.h"
#include "tools/verbs/gpus.h"

namespace halfbyte::cli {

struct BrokenThing {
  std::string problem;
  std::string fix;
};

struct Diagnosis {
  Machine machine;
  std::string isa;                // of the kernels in use; empty: HALFBYTE_ISA is wrong
  std::vector<std::string> isas;  // that this CPU runs, best first
  nlohmann::ordered_json onednn;  // as docs/json.md has it
  nlohmann::ordered_json torch;   // what halfbyte-model said; null: there is none, or it did not start
  std::vector<Gpu> gpus;
  std::vector<Trial> trials;       // those of both programs
  std::vector<std::string> notes;  // slower or less than it could be, and what to do
  std::vector<BrokenThing> broken;
};

// Products of halfbyte's own kernels, without LibTorch, in each dtype.
std::vector<Trial> try_kernels();

// Fills `gpus`, and says what stands between them and LibTorch. `root` stands for "/".
// Precondition: `torch` is known.
void look_at_gpus(const std::filesystem::path& root, Diagnosis& out);

// HALFBYTE_SYSROOT stands for "/" where GPUs are looked for: a test's tree, or a host's that is mounted elsewhere.
Diagnosis diagnose();

void print_diagnosis(const Diagnosis& diagnosis);
void print_diagnosis_json(const Diagnosis& diagnosis);

}  // namespace halfbyte::cli
