// A host's module for tests, made of names: "a.b.weight" is a parameter or buffer of module b in module a.
#pragma once

#include <map>
#include <memory>
#include <string>

#include <torch/nn/module.h>

namespace halfbyte::tests {

class Tree : public torch::nn::Module {
 public:
  void parameter(const std::string& name, const at::Tensor& value, bool requires_grad = true) {
    home(name).register_parameter(last(name), value, requires_grad && at::isFloatingType(value.scalar_type()));
  }
  void buffer(const std::string& name, const at::Tensor& value) { home(name).register_buffer(last(name), value); }
  void module(const std::string& name, const std::shared_ptr<torch::nn::Module>& part) {
    home(name).register_module(last(name), part);
  }
  // What the module holds now under this name.
  at::Tensor operator[](const std::string& name) const {
    for (const auto& item : named_parameters()) {
      if (item.key() == name) return item.value();
    }
    return named_buffers()[name];
  }

 private:
  static std::string last(const std::string& name) { return name.substr(name.rfind('.') + 1); }
  Tree& home(const std::string& name) {
    const auto dot = name.find('.');
    if (dot == std::string::npos) return *this;
    std::shared_ptr<Tree>& child = children_by_name_[name.substr(0, dot)];
    if (!child) child = register_module(name.substr(0, dot), std::make_shared<Tree>());
    return child->home(name.substr(dot + 1));
  }
  std::map<std::string, std::shared_ptr<Tree>> children_by_name_;
};

}  // namespace halfbyte::tests
