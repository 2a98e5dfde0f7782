// A directory of peft's: which Linears its adapters stand beside, and where their matrices lie. Needs no LibTorch.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "convert/merge/peft_config.h"
#include "loader/files/checkpoint.h"

namespace halfbyte::convert {

struct PeftModule {
  std::string name;  // of the Linear, as the model's tensors are called
  // Tensors of the file: (rank, in_features), (out_features, rank), and DoRA's (out_features), else null.
  const files::TensorRecord* a = nullptr;
  const files::TensorRecord* b = nullptr;
  const files::TensorRecord* magnitude = nullptr;
  double scaling = 0;

  std::int64_t rank() const { return a->shape[0]; }
  std::int64_t in_features() const { return a->shape[1]; }
  std::int64_t out_features() const { return b->shape[0]; }
};

struct PeftAdapter {
  files::fs::path directory;
  PeftConfig config;
  files::Checkpoint file;           // whose manifest the modules point into
  std::vector<PeftModule> modules;  // by name

  // Values [first, first + out.size()) of a tensor, which are whole rows. Thread-safe. Errors: kIo.
  void read(const files::TensorRecord& tensor, std::int64_t first, std::span<float> out) const;
  // XXH3-128 of the two files, one after another. Errors: kIo.
  std::string hash() const;
};

// Errors: kNotFound; kCorrupt naming a tensor; kUnsupported for another kind of adapter.
PeftAdapter open_peft_adapter(const files::fs::path& directory);

// What follows a module's name, and what comes before it, in the names of its tensors.
inline constexpr std::string_view kPeftPrefix = "base_model.model.";
inline constexpr std::string_view kPeftA = ".lora_A.weight";
inline constexpr std::string_view kPeftB = ".lora_B.weight";
inline constexpr std::string_view kPeftMagnitude = ".lora_magnitude_vector";

}  // namespace halfbyte::convert
