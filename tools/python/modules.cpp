// Python's torch.nn.Modules as halfbyte's loader takes them: halfbyte.restore_into, restore_for_training,
// training_problems.
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/csrc/utils/pybind.h>
#include <torch/optim/sgd.h>

#include <pybind11/functional.h>
#include <pybind11/stl/filesystem.h>

#include <halfbyte/low_bit_linear.h>
#include <halfbyte/restore_into.h>
#include <halfbyte/training.h>

#include "tools/python/packed.h"
#include "tools/python/parts.h"
#include "tools/python/running.h"
#include "tools/python/source.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;
using py::operator""_a;

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// One module of a tree: where it stands ("layers.0.fc", "" for the root), its own tensors, and of a
// halfbyte.nn.LowBitLinear the fields of its weight.
struct Branch {
  std::string path;
  NamedTensors parameters, buffers;
  std::optional<py::dict> packed;
};

// The same tree in LibTorch's C++ modules, which hold the same tensors: what is done to them is done to Python's.
class Tree {
 public:
  // Parents come before their children.
  explicit Tree(const std::vector<Branch>& branches) {
    for (const Branch& branch : branches) add(branch);
  }
  torch::nn::Module& root() { return *modules_.at(""); }
  // What Python's LowBitLinears are to take: (path, fields) of those whose weight is another now.
  py::list changed() const {
    py::list out;
    for (const auto& [path, linear, before] : packed_) {
      if (!linear->weight().codes.is_same(before)) out.append(py::make_tuple(path, fields_of(linear->weight())));
    }
    return out;
  }

 private:
  struct Packed {
    std::string path;
    std::shared_ptr<LowBitLinear> linear;
    at::Tensor before;
  };

  void add(const Branch& branch) {
    std::shared_ptr<torch::nn::Module> made;
    if (branch.packed) {
      std::optional<at::Tensor> bias;
      for (const auto& [name, tensor] : branch.parameters) bias = tensor;
      auto linear = std::make_shared<LowBitLinear>(tensor_of(*branch.packed), bias);
      packed_.push_back({branch.path, linear, linear->weight().codes});
      made = std::move(linear);
    } else {
      made = std::make_shared<torch::nn::Module>();
      for (const auto& [name, tensor] : branch.parameters)
        made->register_parameter(name, tensor, tensor.requires_grad());
      for (const auto& [name, tensor] : branch.buffers) made->register_buffer(name, tensor);
    }
    if (!branch.path.empty()) {
      const std::size_t dot = branch.path.rfind('.');
      const bool is_nested = dot != std::string::npos;
      modules_.at(is_nested ? branch.path.substr(0, dot) : "")
          ->register_module(branch.path.substr(is_nested ? dot + 1 : 0), made);
    }
    modules_.emplace(branch.path, std::move(made));
  }

  std::map<std::string, std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<Packed> packed_;
};

std::vector<Branch> branches_of(const py::list& rows) {
  std::vector<Branch> out;
  for (const auto& row : rows) {
    const auto [path, parameters, buffers, packed] =
        row.cast<std::tuple<std::string, NamedTensors, NamedTensors, std::optional<py::dict>>>();
    out.push_back({path, parameters, buffers, packed});
  }
  return out;
}

py::object dtype_name(const std::optional<Dtype>& dtype) {
  if (!dtype) return py::none();
  return py::str(std::string(name(*dtype)));
}

py::dict dict_of(const RestoreReport& report) {
  py::list restored;
  for (const RestoredTensor& one : report.restored)
    restored.append(py::dict("name"_a = one.name, "checkpoint_name"_a = one.checkpoint_name,
                             "is_buffer"_a = one.is_buffer, "recorded"_a = dtype_name(one.recorded),
                             "stored"_a = one.stored, "before"_a = one.before, "loaded"_a = one.loaded));
  return py::dict("restored"_a = restored, "cast"_a = report.cast, "derived"_a = report.derived,
                  "missing"_a = report.missing, "unused"_a = report.unused, "mismatched"_a = report.mismatched,
                  "notes"_a = report.notes);
}

RestoreOptions options_of(const std::optional<std::string>& dtype, const std::vector<std::string>& keep_float32,
                          const py::object& rename, const std::vector<std::string>& non_persistent, bool strict,
                          const std::string& device, bool verify, Running& running) {
  RestoreOptions out;
  if (dtype) out.dtype = DtypePolicy::parse(*dtype);
  out.keep_float32 = keep_float32;
  out.non_persistent = non_persistent;
  out.strict = strict;
  out.device = at::Device(device);
  if (verify) out.verify = Verification::kHashes;
  if (rename.is_none()) return out;
  out.rename = [&running, rename](const std::string& name) {
    std::string renamed;
    running.asked([&] {
      const py::object given = rename(name);
      if (!given.is_none()) renamed = given.cast<std::string>();
      return true;
    });
    running.finish();
    return renamed;
  };
  return out;
}

// Returns (report, what LowBitLinears are to take).
template <bool is_for_training>
py::tuple restore(const py::list& modules, const Source& path, const std::optional<std::string>& dtype,
                  const std::vector<std::string>& keep_float32, const py::object& rename,
                  const std::vector<std::string>& non_persistent, bool strict, const std::string& device, bool verify,
                  const std::vector<std::string>& frozen) {
  Tree tree(branches_of(modules));
  Running running;
  const RestoreOptions options =
      options_of(dtype, keep_float32, rename, non_persistent, strict, device, verify, running);
  const RestoreReport report = running.run([&] {
    if (is_for_training) return restore_for_training(tree.root(), path, {.restore = options, .frozen = frozen});
    return restore_into(tree.root(), path, options);
  });
  return py::make_tuple(dict_of(report), tree.changed());
}

using Groups = std::vector<std::vector<at::Tensor>>;

// Of an optimizer nothing but its parameters is looked at.
template <auto kCheck>
auto check(const py::list& modules, const Groups& groups) {
  Tree tree(branches_of(modules));
  std::vector<torch::optim::OptimizerParamGroup> parameters;
  for (const std::vector<at::Tensor>& group : groups) parameters.emplace_back(group);
  const torch::optim::SGD optimizer(std::move(parameters), torch::optim::SGDOptions(1));
  return kCheck(tree.root(), optimizer, /*adapters=*/nullptr);
}

}  // namespace

void add_modules(py::module_& module) {
  const auto add = [&](const char* name, auto function) {
    module.def(name, function, py::arg("modules"), py::arg("path"), py::kw_only(), py::arg("dtype"),
               py::arg("keep_float32"), py::arg("rename"), py::arg("non_persistent"), py::arg("strict"),
               py::arg("device"), py::arg("verify"), py::arg("frozen"));
  };
  add("restore_into", &restore<false>);
  add("restore_for_training", &restore<true>);
  module.def("training_problems", &check<&training_problems>, py::arg("modules"), py::arg("groups"));
  module.def("assert_trainable", &check<&assert_trainable>, py::arg("modules"), py::arg("groups"));
}

}  // namespace halfbyte::python
