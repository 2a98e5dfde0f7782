#include "models/modules/module_path.h"

#include <string>

namespace halfbyte::models {

namespace {

// The module below `root` of that name, made where there is none.
std::shared_ptr<torch::nn::Module> child_of(torch::nn::Module& root, const std::string& name) {
  const auto children = root.named_children();
  const auto* found = children.find(name);
  return found ? *found : root.register_module(name, std::make_shared<torch::nn::Module>());
}

}  // namespace

void register_at(torch::nn::Module& root, std::string_view path, std::shared_ptr<torch::nn::Module> child) {
  const std::size_t dot = path.find('.');
  const std::string first(path.substr(0, dot));
  if (dot == std::string_view::npos) {
    root.register_module(first, std::move(child));
    return;
  }
  register_at(*child_of(root, first), path.substr(dot + 1), std::move(child));
}

at::Tensor register_parameter_at(torch::nn::Module& root, std::string_view path, at::Tensor tensor) {
  const std::size_t dot = path.find('.');
  const std::string first(path.substr(0, dot));
  if (dot == std::string_view::npos) return root.register_parameter(first, std::move(tensor), /*requires_grad=*/false);
  return register_parameter_at(*child_of(root, first), path.substr(dot + 1), std::move(tensor));
}

}  // namespace halfbyte::models
