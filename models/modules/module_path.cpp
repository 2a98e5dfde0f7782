#include "models/modules/module_path.h"

#include <string>

namespace halfbyte::models {

void register_at(torch::nn::Module& root, std::string_view path, std::shared_ptr<torch::nn::Module> child) {
  const std::size_t dot = path.find('.');
  const std::string first(path.substr(0, dot));
  if (dot == std::string_view::npos) {
    root.register_module(first, std::move(child));
    return;
  }
  const auto children = root.named_children();
  const auto* found = children.find(first);
  const auto between = found ? *found : root.register_module(first, std::make_shared<torch::nn::Module>());
  register_at(*between, path.substr(dot + 1), std::move(child));
}

}  // namespace halfbyte::models
