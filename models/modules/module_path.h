// Modules and parameters at paths: checkpoints of some families name them "encoder.layers", and a module's name cannot
// hold a dot.
#pragma once

#include <memory>
#include <string_view>

#include <torch/nn/module.h>

namespace halfbyte::models {

// Registers `child` below `root` as "a.b.c" says, with plain modules for what is missing in between.
void register_at(torch::nn::Module& root, std::string_view path, std::shared_ptr<torch::nn::Module> child);

// The same of a tensor, which is the last word's. Gives the tensor that the module holds.
at::Tensor register_parameter_at(torch::nn::Module& root, std::string_view path, at::Tensor tensor);

}  // namespace halfbyte::models
