#include <halfbyte/training.h>

#include <algorithm>
#include <map>
#include <set>

#include <ATen/autocast_mode.h>
#include <torch/optim/optimizer.h>

#include <halfbyte/lora.h>
#include <halfbyte/low_bit_linear.h>

#include "loader/files/manifest.h"
#include "loader/module_slots.h"
#include "quant/operators/translate.h"

namespace halfbyte {
namespace {

constexpr std::size_t kShown = 3;

bool is_narrow(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) && tensor.element_size() < 4;
}

// Compares an optimizer's parameters with a module's.
class TrainingCheck {
 public:
  TrainingCheck(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer, const Lora* adapters) {
    for (const auto& item : module.named_parameters()) parameters_.emplace_back(item.key(), item.value());
    if (adapters) add_parameters(*adapters);
    for (const auto& [name, parameter] : parameters_) names_.emplace(parameter.unsafeGetTensorImpl(), name);
    remember_packed({}, module);
    // The module itself need not be owned by a shared_ptr.
    for (const auto& item : module.named_modules({}, /*include_self=*/false))
      remember_packed(item.key() + ".", *item.value());
    std::size_t group = 0;
    for (const auto& parameters : optimizer.param_groups()) {
      std::size_t index = 0;
      for (const at::Tensor& parameter : parameters.params()) check(parameter, group, index++);
      ++group;
    }
    if (seen_.empty()) {
      add("the optimizer has no parameters: give it module.parameters()");
      return;
    }
    for (const auto& [name, parameter] : parameters_) check_is_updated(name, parameter);
  }

  std::vector<std::string> problems() && { return std::move(problems_); }

 private:
  struct Packed {
    std::string name;
    LowBitTensor weight;
  };

  void add_parameters(const Lora& adapters) {
    for (const auto& [name, tensor] : adapters.named_parameters()) parameters_.emplace_back(name, tensor);
  }

  void remember_packed(const std::string& prefix, const torch::nn::Module& module) {
    const auto* linear = dynamic_cast<const LowBitLinear*>(&module);
    if (linear) packed_.push_back({prefix + "weight", linear->weight()});
  }

  void add(std::string problem) { problems_.push_back(std::move(problem)); }

  // The name of the packed weight that this is a part of; empty: of none.
  std::string packed_part(const at::Tensor& tensor) const {
    for (const Packed& packed : packed_) {
      std::vector<std::pair<const char*, at::Tensor>> parts{{"codes", packed.weight.codes},
                                                            {"scales", packed.weight.scales}};
      for (const LowBitTensor::Extra& extra : LowBitTensor::extras())
        parts.emplace_back(extra.title, (packed.weight.*extra.tensor).value_or(at::Tensor()));
      for (const auto& [part, value] : parts) {
        if (is_same_memory(value, tensor)) {
          return std::string("the ") + part + " of " + packed.name + " (" + packed.weight.description() + ")";
        }
      }
    }
    return {};
  }

  void check(const at::Tensor& parameter, std::size_t group, std::size_t index) {
    const std::string place =
        "parameter " + std::to_string(index) + " of the optimizer's group " + std::to_string(group);
    if (!parameter.defined()) return add(place + " is undefined");
    if (const std::string packed = packed_part(parameter); !packed.empty()) {
      seen_.insert(parameter.unsafeGetTensorImpl());
      return add(place + " is " + packed + ": a packed weight does not train; train an adapter beside it");
    }
    const auto found = names_.find(parameter.unsafeGetTensorImpl());
    if (found == names_.end()) {
      seen_.insert(parameter.unsafeGetTensorImpl());
      return add(place + " (" + describe(parameter) +
                 ") is not a parameter of the module: make the optimizer from this module's parameters()");
    }
    if (!seen_.insert(parameter.unsafeGetTensorImpl()).second) {
      return add(found->second + " is in the optimizer twice: every step would update it twice");
    }
    check_memory(found->second, parameter);
    check_values(found->second, parameter);
  }

  // One weight as two tensors, each with a part of its gradients.
  void check_memory(const std::string& name, const at::Tensor& parameter) {
    if (!parameter.has_storage() || parameter.is_meta() || parameter.numel() == 0) return;
    const auto [same, is_new] = memory_.emplace(parameter.const_data_ptr(), name);
    if (!is_new)
      add(same->second + " and " + name +
          " are tied, but two tensors: every step would update one memory twice, by parts of its gradients; make them "
          "one tensor, or freeze both");
  }

  void check_values(const std::string& name, const at::Tensor& parameter) {
    if (!parameter.requires_grad()) {
      return add(name + " is in the optimizer but frozen: call requires_grad_(true), or leave it out of the optimizer");
    }
    if (is_narrow(parameter)) {
      add(name + " is " + describe(parameter) +
          ": updates smaller than its last bit are lost; keep it in float32 (halfbyte::restore_for_training, or "
          "module.to(torch::kFloat) before the optimizer is made) and compute under halfbyte::Autocast");
    }
    if (parameter.is_meta()) add(name + " is on Meta: it has no values yet; fill it with restore_for_training");
    if (parameter.is_inference()) add(name + " was made under InferenceMode: make the module outside of it");
    if (!first_.defined()) {
      first_ = parameter;
      first_name_ = name;
    } else if (parameter.device() != first_.device()) {
      add(name + " is on " + parameter.device().str() + " but " + first_name_ + " is on " + first_.device().str() +
          ": move the whole module with .to() before the optimizer is made");
    }
  }

  void check_is_updated(const std::string& name, const at::Tensor& parameter) {
    if (!parameter.requires_grad() || seen_.contains(parameter.unsafeGetTensorImpl())) return;
    add(name + " wants gradients but is not in the optimizer: add it, or call requires_grad_(false)");
  }

  std::vector<std::pair<std::string, at::Tensor>> parameters_;
  std::map<const c10::TensorImpl*, std::string> names_;
  std::vector<Packed> packed_;
  std::set<const c10::TensorImpl*> seen_;
  std::map<const void*, std::string> memory_;
  at::Tensor first_;
  std::string first_name_;
  std::vector<std::string> problems_;
};

bool is_frozen(const TrainingOptions& options, const std::string& name) {
  return std::ranges::any_of(options.frozen,
                             [&](const std::string& pattern) { return files::matches_pattern(pattern, name); });
}

// Without what was said of the problem before, where it is the same. `said`: what stood behind its colon.
std::string shown(const std::string& problem, std::string& said) {
  const std::size_t colon = problem.find(": ");
  const std::string rest = colon == std::string::npos ? "" : problem.substr(colon);
  if (!rest.empty() && rest == said) return problem.substr(0, colon) + ", too";
  said = rest;
  return problem;
}

}  // namespace

RestoreReport restore_for_training(torch::nn::Module& module, const std::filesystem::path& checkpoint,
                                   const TrainingOptions& options) {
  RestoreOptions restore = options.restore;
  restore.dtype = DtypePolicy::float32();
  RestoreReport report = restore_into(module, checkpoint, restore);
  for (const auto& item : module.named_parameters()) {
    at::Tensor parameter = item.value();
    if (at::isFloatingType(parameter.scalar_type())) parameter.requires_grad_(!is_frozen(options, item.key()));
  }
  module.train();
  return report;
}

std::vector<std::string> training_problems(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
                                           const Lora* adapters) {
  return TrainingCheck(module, optimizer, adapters).problems();
}

void assert_trainable(const torch::nn::Module& module, const torch::optim::Optimizer& optimizer, const Lora* adapters) {
  const std::vector<std::string> problems = training_problems(module, optimizer, adapters);
  if (problems.empty()) return;
  std::string text, cure;
  for (std::size_t i = 0; i < std::min(problems.size(), kShown); ++i)
    text += (i ? "; " : "") + shown(problems[i], cure);
  if (problems.size() > kShown) text += " (and " + std::to_string(problems.size() - kShown) + " more)";
  throw Error(ErrorCode::kContract, "assert_trainable: " + text);
}

Autocast::Autocast(at::ScalarType dtype, at::DeviceType device)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      previous_(at::autocast::get_autocast_dtype(device)) {
  if (dtype != at::kBFloat16 && dtype != at::kHalf) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("Autocast: ") + c10::toString(dtype) + " is not bfloat16 or float16");
  }
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, dtype);
}

Autocast::~Autocast() {
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, previous_);
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
}

}  // namespace halfbyte
