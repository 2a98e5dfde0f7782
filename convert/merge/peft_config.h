// adapter_config.json. Source: peft, tuners/lora/config.py.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "loader/files/platform.h"

namespace halfbyte::convert {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";

struct PeftConfig {
  std::int64_t rank = 0;
  double alpha = 0;
  bool is_rank_stabilised = false;
  bool is_weight_decomposed = false;  // DoRA
  // Ranks and alphas of some modules: the first that names one wins.
  std::vector<std::pair<std::string, double>> ranks = {};
  std::vector<std::pair<std::string, double>> alphas = {};

  std::int64_t rank_of(const std::string& module) const;
  double scaling_of(const std::string& module) const;
};

// Errors: kNotFound; kCorrupt; kUnsupported naming the setting of a kind of adapter that is not read.
PeftConfig read_peft_config(const files::fs::path& directory);

}  // namespace halfbyte::convert
