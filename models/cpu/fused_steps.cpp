#include "models/cpu/fused_steps.h"

#include <algorithm>

#include <halfbyte/error.h>
#include <halfbyte/not_finite_error.h>

#include "models/cpu/damage.h"
#include "models/cpu/forward.h"
#include "models/cpu/fused_key_values.h"
#include "models/cpu/fused_views.h"
#include "models/cpu/multiply.h"
#include "models/profile/recorder.h"
#include "quant/thread_pool.h"

namespace halfbyte::models::cpu {

// What a step gave. Its memory goes back to the model with it.
class FusedSteps::Hidden final : public StepModel::Given {
 public:
  explicit Hidden(const FusedSteps& owner) : owner_(owner), memory_(owner.take()) {}
  ~Hidden() override { owner_.put_back(std::move(memory_)); }
  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;

  float* rows(std::int64_t tokens) {
    memory_->hidden.resize(static_cast<std::size_t>(tokens * owner_.config_.hidden_size));
    return memory_->hidden.data();
  }
  std::span<const float> values() const { return memory_->hidden; }

  std::span<const float> logits(std::int64_t first, std::int64_t count) override {
    const quant::OwnThreads own_threads;
    const ModelConfig& config = owner_.config_;
    ProductsView& head = memory_->head;
    const std::int64_t size = count * config.hidden_size;
    const auto* const input = reinterpret_cast<const std::byte*>(memory_->hidden.data() + first * config.hidden_size);
    std::byte* const operand = memory_->operand.at_least(bytes_of_values(size, head.operand));
    quant::convert(input, Dtype::kFloat32, operand, head.operand, size);
    multiply(head, operand, count, memory_->reordered, &memory_->products);
    const std::span<float> out(memory_->products.floats(0), static_cast<std::size_t>(count * config.vocab_size));
    if (!quant::are_finite(out)) owner_.refuse_values();
    const auto scale = static_cast<float>(config.logit_scale);
    if (scale != 1.0f) std::ranges::transform(out, out.begin(), [&](float x) { return x * scale; });
    return out;
  }

 private:
  const FusedSteps& owner_;
  std::unique_ptr<Memory> memory_;
};

FusedSteps::FusedSteps(const ModelConfig& config, FusedWeights weights, const DtypePolicy& policy)
    : config_(config), weights_(std::move(weights)), policy_(policy) {
  for (const RopeConfig& rope : config_.ropes) ropes_.push_back(std::make_shared<const RotaryTables>(rope));
}

std::shared_ptr<const FusedSteps> FusedSteps::make(const ModelConfig& config, FusedWeights weights,
                                                   const DtypePolicy& policy, KeyValues key_values, std::string& why) {
  std::shared_ptr<FusedSteps> out(new FusedSteps(config, std::move(weights), policy));
  why = view(out->config_, out->weights_, out->view_, out->head_);
  if (!why.empty()) return nullptr;
  out->view_.operand = policy.operand().value();
  out->view_.key_values = key_values;
  out->self_ = out;
  return out;
}

Session FusedSteps::make_session() const {
  Session::Layers layers;
  for (const LayerView& layer : view_.layers) {
    const AttentionSettings& a = layer.attention->settings;
    const KeyBlocks::Shape shape{a.kv_heads, a.head_dim, a.head_dim, a.reach};
    layers.push_back(a.has_own_keys() ? std::make_unique<FusedKeyValues>(shape, view_.operand, view_.key_values)
                                      : nullptr);
  }
  return Session(std::move(layers), ropes_);
}

void FusedSteps::check(std::span<const std::int64_t> ids) const {
  const std::int64_t vocabulary = view_.embedding.out_features;
  const auto is_known = [&](std::int64_t id) { return id >= 0 && id < vocabulary; };
  const auto unknown = std::ranges::find_if_not(ids, is_known);
  if (unknown == ids.end()) return;
  throw Error(ErrorCode::kInvalidArgument, "token id " + std::to_string(*unknown) +
                                               " is beyond this model's embedding, which has 0 to " +
                                               std::to_string(vocabulary - 1));
}

void FusedSteps::refuse_values() const {
  check_finite(weights_);  // what they hold is no matter of dtypes
  const std::string what = "an activation, a query or a key does not fit its dtype (policy " + policy_.name() + ")";
  if (policy_.operand() == Dtype::kFloat16)
    throw NotFiniteError(what + "; load with " + Option::kDtype + " amp:bfloat16");
  throw NotFiniteError(what + ": no dtype holds more; the weights may be damaged (" + Operation::kVerify + ")");
}

std::unique_ptr<StepModel::Given> FusedSteps::step(std::span<const std::int64_t> ids,
                                                   std::span<const StepRow> rows) const {
  check(ids);
  const quant::OwnThreads own_threads;
  const auto tokens = static_cast<std::int64_t>(ids.size());
  const auto work = WorkScope::pass(tokens);
  auto out = std::make_unique<Hidden>(*this);
  float* const hidden = out->rows(tokens);
  for (const StepRow& row : rows) row.session->was_finite();  // what a pass noted that was broken off
  {
    const Workspaces::Lease workspace(workspaces_);
    if ((*workspace).model.layers.empty()) (*workspace).model = view_;
    forward(*workspace, {ids, rows, nullptr}, nullptr, hidden);
  }
  bool is_finite = quant::are_finite(out->values());
  for (const StepRow& row : rows) is_finite &= row.session->was_finite();
  if (!is_finite) refuse_values();
  for (const StepRow& row : rows) row.session->commit(row.tokens);
  return out;
}

std::unique_ptr<FusedSteps::Memory> FusedSteps::take() const {
  const std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    std::unique_ptr<Memory> out = std::move(free_.back());
    free_.pop_back();
    return out;
  }
  auto out = std::make_unique<Memory>();
  out->head = head_;
  return out;
}

void FusedSteps::put_back(std::unique_ptr<Memory> memory) const {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(memory));
}

}  // namespace halfbyte::models::cpu
