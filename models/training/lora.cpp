#include <halfbyte/lora.h>

#include <algorithm>
#include <cmath>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>
#include <halfbyte/low_bit_linear.h>

#include "models/architectures/name_pattern.h"
#include "models/modules/tap.h"

namespace halfbyte {
namespace {

[[noreturn]] void refuse(const std::string& problem) { throw Error(ErrorCode::kInvalidArgument, "LoRA: " + problem); }

double scaling_of(const LoraOptions& options) {
  if (options.rank < 1) refuse("a rank of " + std::to_string(options.rank));
  if (!(options.dropout >= 0 && options.dropout < 1)) refuse("dropout must be from 0 on and below 1");
  const auto rank = static_cast<double>(options.rank);
  return options.alpha / (options.is_rank_stabilised ? std::sqrt(rank) : rank);
}

struct NamedLinear {
  std::string name;
  const models::Linear* linear;
};

// In the order of the tree, each once.
std::vector<NamedLinear> linears_of(const models::CausalLM& model) {
  std::vector<NamedLinear> out;
  for (const auto& item : model.named_modules()) {
    const auto* linear = dynamic_cast<const models::Linear*>(item.value().get());
    if (linear && !linear->path().empty()) out.push_back({linear->path(), linear});
  }
  return out;
}

}  // namespace

Lora::Lora(const models::CausalLM& model, const LoraOptions& options)
    : options_(options), scaling_(scaling_of(options)) {
  const std::vector<NamedLinear> linears = linears_of(model);
  const auto names = [](const std::string& pattern, const NamedLinear& one) {
    return models::matches_pattern(pattern, one.name);
  };
  for (const std::string& pattern : options.targets) {
    if (std::ranges::none_of(linears, [&](const NamedLinear& one) { return names(pattern, one); }))
      refuse("target '" + pattern + "' names no Linear of the model");
  }
  at::Generator random = at::detail::createCPUGenerator(options.seed);
  for (const NamedLinear& one : linears) {
    const bool is_named =
        std::ranges::any_of(options.targets, [&](const auto& pattern) { return names(pattern, one); });
    if (options.targets.empty() ? one.linear == &model.lm_head() : !is_named) continue;
    const std::int64_t in = one.linear->in_features(), out = one.linear->out_features();
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    at::Tensor a = at::empty({options.rank, in}, at::kFloat).uniform_(-bound, bound, random);
    at::Tensor b = at::zeros({out, options.rank}, at::kFloat);
    by_linear_.emplace(one.linear, adapters_.size());
    adapters_.push_back({one.name, a.requires_grad_(true), b.requires_grad_(true)});
  }
  if (adapters_.empty()) refuse("the model has no Linear to stand beside");
}

Lora::Lora(const models::CausalLM& model, const LoraOptions& options, std::vector<Adapter> adapters)
    : options_(options), scaling_(scaling_of(options)), adapters_(std::move(adapters)) {
  const std::vector<NamedLinear> linears = linears_of(model);
  for (std::size_t i = 0; i < adapters_.size(); ++i) {
    const Adapter& one = adapters_[i];
    const auto found = std::ranges::find(linears, one.name, &NamedLinear::name);
    if (found == linears.end()) refuse("the model has no Linear '" + one.name + "', which an adapter is for");
    const models::Linear& linear = *found->linear;
    const bool fits = one.a.dim() == 2 && one.b.dim() == 2 && one.a.size(1) == linear.in_features() &&
                      one.b.size(0) == linear.out_features() && one.a.size(0) == one.b.size(1);
    if (!fits) refuse("the adapter of '" + one.name + "' does not fit its shape");
    by_linear_.emplace(&linear, i);
  }
}

Lora::~Lora() = default;

std::vector<at::Tensor> Lora::parameters() const {
  std::vector<at::Tensor> out;
  for (const Adapter& one : adapters_) {
    out.push_back(one.a);
    out.push_back(one.b);
  }
  return out;
}

// Dropout is drawn anew from the same seed where a layer is run a second time for its gradients.
at::Tensor Lora::adapted(std::size_t index, const at::Tensor& input, const at::Tensor& result,
                         std::int64_t step) const {
  const Adapter& adapter = adapters_[index];
  at::Tensor x = input.to(at::kFloat);
  if (options_.dropout > 0 && step >= 0) {
    const std::uint64_t stream = static_cast<std::uint64_t>(step) * adapters_.size() + index;
    at::Generator random = at::detail::createCPUGenerator(options_.seed * 0x9e3779b97f4a7c15 + stream + 1);
    const double kept = 1 - options_.dropout;
    x = x * at::empty_like(x.detach()).bernoulli_(kept, random).div_(kept);
  }
  const at::Tensor added = at::linear(at::linear(x, adapter.a), adapter.b) * scaling_;
  return result + added.to(result.scalar_type());
}

Lora::Scope::Scope(const Lora& lora, std::int64_t step)
    : tap_(std::make_unique<models::Tap>(models::Tap::Change{
          [&lora, step](const models::Linear& linear, const at::Tensor& input, const at::Tensor& result) {
            const auto found = lora.by_linear_.find(&linear);
            return found == lora.by_linear_.end() ? result : lora.adapted(found->second, input, result, step);
          }})) {}

Lora::Scope::~Scope() = default;

}  // namespace halfbyte
