#include <halfbyte/lora.h>

#include <algorithm>
#include <cmath>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>
#include <halfbyte/low_bit_linear.h>

#include "models/architectures/name_pattern.h"
#include "models/modules/linear.h"
#include "models/modules/tap.h"
#include "models/training/low_rank.h"

namespace halfbyte {
namespace {

// Of rows of a weight that are dense at once. Units: values.
constexpr std::int64_t kBlockValues = std::int64_t{1} << 20;

[[noreturn]] void refuse(const std::string& problem) { throw Error(ErrorCode::kInvalidArgument, "LoRA: " + problem); }

double scaling_of(const LoraOptions& options, std::int64_t rank) {
  const auto size = static_cast<double>(rank);
  return options.alpha / (options.is_rank_stabilised ? std::sqrt(size) : size);
}

const LoraOptions& checked(const LoraOptions& options) {
  if (options.rank < 1) refuse("a rank of " + std::to_string(options.rank));
  if (!(options.dropout >= 0 && options.dropout < 1)) refuse("dropout must be from 0 on and below 1");
  return options;
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

// Rows [first, first + count) of the weight. Shape: float32 (count, in_features).
at::Tensor rows_of(const models::Linear& linear, std::int64_t first, std::int64_t count) {
  if (const auto* dense = dynamic_cast<const models::DenseLinear*>(&linear))
    return dense->weight().narrow(0, first, count).to(at::kFloat);
  const LowBitTensor& weight = dynamic_cast<const LowBitLinear&>(linear).weight();
  return weight.rows(at::arange(first, first + count, at::TensorOptions(weight.device()).dtype(at::kLong)))
      .dequantize(at::kFloat);
}

// Of the rows of W + scaling * B A. Shape: float32 (out_features).
at::Tensor norms_of(const models::Linear& linear, const Lora::Adapter& one) {
  const at::NoGradGuard without;
  at::Tensor out = at::empty({linear.out_features()}, one.a.options().requires_grad(false));
  const std::int64_t step = std::max<std::int64_t>(1, kBlockValues / linear.in_features());
  for (std::int64_t first = 0; first < out.size(0); first += step) {
    const std::int64_t count = std::min(step, out.size(0) - first);
    const at::Tensor rows = at::addmm(rows_of(linear, first, count), one.b.narrow(0, first, count), one.a,
                                      /*beta=*/1, /*alpha=*/*one.scaling);
    out.narrow(0, first, count).copy_(at::linalg_vector_norm(rows, 2, 1));
  }
  return out;
}

bool fits(const Lora::Adapter& one, const models::Linear& linear) {
  const bool are_matrices = one.a.dim() == 2 && one.b.dim() == 2 && one.a.size(1) == linear.in_features() &&
                            one.b.size(0) == linear.out_features() && one.a.size(0) == one.b.size(1);
  return are_matrices && (!one.magnitude.defined() || one.magnitude.sizes() == at::IntArrayRef(linear.out_features()));
}

// Of a packed product that can be one step of the graph with its adapter: of an input that it multiplied as it came.
// Null: another one.
const LowBitTensor* weight_of_step(const models::Linear& linear, const at::Tensor& input, const at::Tensor& result) {
  const auto* packed = dynamic_cast<const LowBitLinear*>(&linear);
  if (!packed || !at::GradMode::is_enabled() || !input.is_cpu() || result.dim() != input.dim()) return nullptr;
  const LowBitTensor& weight = packed->weight();
  const at::ScalarType type = input.scalar_type();
  const auto operand = linear.operand_dtype();
  const bool is_as_it_came = operand ? *operand == type : c10::promoteTypes(type, linear.dtype()) == type;
  const bool is_frozen = !weight.scales.requires_grad() && !linear.bias_or_undefined().requires_grad();
  return is_as_it_came && is_frozen && !weight.column_order ? &weight : nullptr;
}

// On the device of what it stands beside, and what gradients are wanted of as before.
void move_beside(at::Tensor& values, const models::Linear& linear) {
  if (!values.defined() || values.device() == linear.device()) return;
  values = values.detach().to(linear.device()).requires_grad_(values.requires_grad());
}

}  // namespace

Lora::Lora(const models::CausalLM& model, const LoraOptions& options)
    : options_(checked(options)), scaling_(scaling_of(options, options.rank)) {
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
    Adapter adapter{one.name, at::empty({options.rank, in}, at::kFloat).uniform_(-bound, bound, random),
                    at::zeros({out, options.rank}, at::kFloat)};
    adapter.scaling = scaling_;
    move_beside(adapter.a, *one.linear);
    move_beside(adapter.b, *one.linear);
    if (options.is_weight_decomposed) adapter.magnitude = norms_of(*one.linear, adapter).requires_grad_(true);
    adapter.a.requires_grad_(true);
    adapter.b.requires_grad_(true);
    put(std::move(adapter), *one.linear);
  }
  if (adapters_.empty()) refuse("the model has no Linear to stand beside");
  refresh();
}

Lora::Lora(const models::CausalLM& model, const LoraOptions& options, std::vector<Adapter> adapters)
    : options_(checked(options)), scaling_(scaling_of(options, options.rank)) {
  const std::vector<NamedLinear> linears = linears_of(model);
  for (Adapter& one : adapters) {
    const auto found = std::ranges::find(linears, one.name, &NamedLinear::name);
    if (found == linears.end()) refuse("the model has no Linear '" + one.name + "', which an adapter is for");
    if (!fits(one, *found->linear)) refuse("the adapter of '" + one.name + "' does not fit its shape");
    if (!one.scaling) one.scaling = scaling_of(options, one.a.size(0));
    for (at::Tensor* part : {&one.a, &one.b, &one.magnitude}) move_beside(*part, *found->linear);
    put(std::move(one), *found->linear);
  }
  refresh();
}

Lora::~Lora() = default;

std::vector<std::pair<std::string, at::Tensor>> Lora::named_parameters() const {
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (const Adapter& one : adapters_) {
    out.emplace_back(one.name + ".lora_A", one.a);
    out.emplace_back(one.name + ".lora_B", one.b);
    if (one.magnitude.defined()) out.emplace_back(one.name + ".lora_magnitude_vector", one.magnitude);
  }
  return out;
}

std::vector<at::Tensor> Lora::parameters() const {
  std::vector<at::Tensor> out;
  for (const auto& [name, tensor] : named_parameters()) out.push_back(tensor);
  return out;
}

void Lora::put(Adapter adapter, const models::Linear& linear) {
  by_linear_[&linear].push_back(adapters_.size());
  adapters_.push_back(std::move(adapter));
  linears_.push_back(&linear);
  norms_.emplace_back();
}

void Lora::refresh() {
  for (std::size_t i = 0; i < adapters_.size(); ++i) {
    if (adapters_[i].magnitude.defined()) norms_[i] = norms_of(*linears_[i], adapters_[i]);
  }
}

// Drawn anew from the same seed where a layer is run a second time for its gradients.
at::Tensor Lora::dropped(std::size_t index, const at::Tensor& input, std::int64_t step) const {
  if (options_.dropout == 0 || step < 0) return input;
  const std::uint64_t stream = static_cast<std::uint64_t>(step) * adapters_.size() + index;
  at::Generator random = at::detail::createCPUGenerator(options_.seed * 0x9e3779b97f4a7c15 + stream + 1);
  const double kept = 1 - options_.dropout;
  const at::Tensor x = input.to(at::kFloat);
  const at::Tensor mask = at::empty_like(x.detach(), at::TensorOptions(at::kCPU)).bernoulli_(kept, random).div_(kept);
  return x * mask.to(x.device());
}

// With a magnitude. `product`: x W^T without the bias, float32.
at::Tensor Lora::turned(std::size_t index, const at::Tensor& input, const at::Tensor& product) const {
  const Adapter& one = adapters_[index];
  const at::Tensor low_rank = at::linear(at::linear(input, one.a), one.b);
  // A row of zeros has no direction, and stays one.
  const at::Tensor factor = (one.magnitude / norms_[index]).masked_fill(norms_[index] == 0, 0);
  return ((factor - 1) * product + factor * low_rank * *one.scaling) * one.weight;
}

at::Tensor Lora::adapted(const models::Linear& linear, const at::Tensor& input, const at::Tensor& result,
                         std::int64_t step) const {
  const auto found = by_linear_.find(&linear);
  if (found == by_linear_.end()) return result;
  at::Tensor product, out = result;
  for (const std::size_t index : found->second) {
    if (!adapters_[index].magnitude.defined()) continue;
    if (!product.defined()) {
      const at::Tensor& bias = linear.bias_or_undefined();
      product = bias.defined() ? result.to(at::kFloat) - bias.to(at::kFloat) : result.to(at::kFloat);
    }
    out = out + turned(index, dropped(index, input, step).to(at::kFloat), product).to(result.scalar_type());
  }
  // After those above, which look at the result.
  const LowBitTensor* weight = product.defined() ? nullptr : weight_of_step(linear, input, result);
  for (const std::size_t index : found->second) {
    const Adapter& one = adapters_[index];
    if (one.magnitude.defined()) continue;
    const at::Tensor x = dropped(index, input, step);
    const bool is_one_step = weight && x.is_same(input);
    out = training::add_low_rank(out, x, one.a, one.b, *one.scaling * one.weight, is_one_step ? weight : nullptr);
    weight = nullptr;
  }
  return out;
}

Lora::Scope::Scope(const Lora& lora, std::int64_t step)
    : tap_(std::make_unique<models::Tap>(models::Tap::Change{
          [&lora, step](const models::Linear& linear, const at::Tensor& input, const at::Tensor& result) {
            return lora.adapted(linear, input, result, step);
          }})) {}

Lora::Scope::~Scope() = default;

}  // namespace halfbyte
