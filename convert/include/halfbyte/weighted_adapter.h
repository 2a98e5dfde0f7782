// An adapter on disk, and how much of it is wanted. Needs no LibTorch.
#pragma once

#include <filesystem>

namespace halfbyte::convert {

struct WeightedAdapter {
  std::filesystem::path directory;  // adapter_config.json and adapter_model.safetensors, as peft writes them
  double weight = 1;                // what the adapter adds is multiplied by it
};

}  // namespace halfbyte::convert
