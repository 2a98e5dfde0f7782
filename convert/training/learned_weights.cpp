// All weights of a model, each float32 (or bfloat16) while it is trained, whatever it was.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <ATen/core/grad_mode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/error.h>
#include <halfbyte/low_bit_linear.h>
#include <halfbyte/quantize_tensor.h>

#include "convert/plan.h"
#include "convert/training/learned.h"
#include "convert/training/weight_places.h"
#include "convert/training/written_weights.h"
#include "models/json/held.h"
#include "models/modules/embedding.h"
#include "quant/operators/torch_dtype.h"

namespace halfbyte::convert {
namespace {

// Errors: kInvalidArgument naming a module whose weight cannot be trained.
void check_dense(const models::CausalLM& model) {
  for (const auto& item : model.named_modules()) {
    const auto* embedding = dynamic_cast<const models::Embedding*>(item.value().get());
    if (!dynamic_cast<const LowBitLinear*>(item.value().get()) && !(embedding && embedding->packed())) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "finetune: the weight of '" + item.key() +
                    "' is packed, and packed weights are not trained; train adapters beside it, or all weights of the "
                    "dequantised checkpoint");
  }
}

// Those of the checkpoint that are packed by default in this scheme.
std::set<std::string> packable(const fs::path& checkpoint, const FinetuneOptions& options) {
  if (options.fake_quantize.empty()) return {};
  QuantizeOptions quantize;
  quantize.scheme = options.fake_quantize;
  quantize.group_size = options.fake_group_size;
  const files::Checkpoint source = files::open_checkpoint(checkpoint);
  std::set<std::string> out;
  for (const PlannedTensor& one : plan(source, quantize).tensors) {
    if (one.scheme) out.insert(source.tensors.at(one.source).name);
  }
  return out;
}

// Weights as they are stored, where passes see them rounded: what masters begin with.
class StoredWeights {
 public:
  // `masters`: their dtype, which what is loaded in it has reached already.
  StoredWeights(const fs::path& checkpoint, const Model& seen, at::ScalarType masters) {
    if (!is_rounded(checkpoint, seen, masters)) return;
    model_ = load_low_bit(checkpoint, {.dtype = DtypePolicy::float32()});
    for (const auto& item : model_->module().named_parameters()) by_name_.emplace(item.key(), item.value());
  }

  const at::Tensor& of(const std::string& name, const at::Tensor& seen) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? seen : found->second;
  }

 private:
  static bool is_rounded(const fs::path& checkpoint, const Model& seen, at::ScalarType masters) {
    const files::Checkpoint opened = files::open_checkpoint(checkpoint);
    const WeightPlaces places(opened);
    const auto parameters = seen.module().named_parameters();
    return std::any_of(parameters.begin(), parameters.end(), [&](const auto& item) {
      const at::ScalarType type = item.value().scalar_type();
      if ((type != at::kBFloat16 && type != at::kHalf) || type == masters) return false;
      return opened.manifest.find(places.of(item.key()).tensor)->stored_dtype != from_torch(type);
    });
  }

  std::optional<Model> model_;
  std::map<std::string, at::Tensor> by_name_;
};

class Weights final : public Learned {
 public:
  Weights(Model model, fs::path checkpoint, const FinetuneOptions& options)
      : model_(std::move(model)), checkpoint_(std::move(checkpoint)), options_(options) {
    check_dense(model_.module());
    const std::set<std::string> packed = packable(checkpoint_, options);
    const StoredWeights stored(checkpoint_, model_, masters_type());
    const at::NoGradGuard without;
    Places places;
    for (const auto& item : model_.module().named_parameters()) {
      if (at::isFloatingType(item.value().scalar_type()))
        add(item.key(), item.value(), stored.of(item.key(), item.value()), packed.contains(item.key()), places);
    }
    std::vector<std::string> names;
    for (const Weight& one : weights_) names.push_back(one.name);
    check_writable(checkpoint_, names);
  }

  std::vector<training::NamedTensor> parameters() const override {
    std::vector<training::NamedTensor> out;
    for (const Weight& one : weights_) out.push_back({one.name, one.master});
    return out;
  }

  nlohmann::json identity() const override {
    return {{"masters", options_.has_bfloat16_masters ? "bfloat16" : "float32"},
            {"fake_quantize", options_.fake_quantize},
            {"fake group size", options_.fake_group_size.value_or(0)}};
  }

  void begin_step() override {
    const at::NoGradGuard without;
    for (const Weight& one : weights_) {
      for (at::Tensor seen : one.seen) seen.mutable_grad() = at::Tensor();
      if (one.is_packed) at::Tensor(one.seen.front()).copy_(packed(one.master));
    }
  }

  void end_backward() override {
    for (const Weight& one : weights_) {
      at::Tensor sum;
      for (const at::Tensor& seen : one.seen) {
        if (seen.grad().defined()) sum = sum.defined() ? sum + seen.grad() : seen.grad();
      }
      at::Tensor(one.master).mutable_grad() = sum.defined() ? sum.to(one.master.scalar_type()) : sum;
    }
  }

  double see(std::int64_t /*pass*/, const std::function<double()>& run) const override { return run(); }

  void write(const Destination& destination) const override {
    nlohmann::json record = {{"masters", identity()["masters"]}};
    if (!options_.fake_quantize.empty()) record["fake_quantize"] = options_.fake_quantize;
    if (options_.begins_anew) record["base"] = {{"drawn_by_seed", options_.seed}};
    write_weights(checkpoint_, parameters(), destination, models::HeldJson(std::move(record)));
  }

 private:
  struct Weight {
    std::string name;
    at::Tensor master;             // what is updated
    std::vector<at::Tensor> seen;  // by passes: the same, but where it is packed in between
    bool is_packed;
  };

  // Where values lie, and whose they are.
  struct Places {
    std::map<const void*, std::size_t> weights;
    std::vector<at::Tensor> kept;  // so that an address stays one tensor's
  };

  at::ScalarType masters_type() const { return options_.has_bfloat16_masters ? at::kBFloat16 : at::kFloat; }

  // A weight under two names, as a tied head's, is one. `stored`: its values.
  void add(const std::string& name, at::Tensor parameter, const at::Tensor& stored, bool is_packed, Places& places) {
    const auto [found, is_new] = places.weights.emplace(parameter.const_data_ptr(), weights_.size());
    if (is_new) {
      Weight weight{name, parameter, {parameter}, is_packed};
      places.kept.push_back(parameter.data());
      parameter.set_data(
          stored.to(parameter.device(), masters_type(), /*non_blocking=*/false, /*copy=*/true).contiguous());
      places.weights.emplace(parameter.const_data_ptr(), weights_.size());  // under the other name, if it is that too
      if (is_packed) weight.master = parameter.detach().clone();
      weights_.push_back(std::move(weight));
    } else {
      Weight& weight = weights_[found->second];
      const bool is_same = weight.seen.front().unsafeGetTensorImpl() == parameter.unsafeGetTensorImpl();
      if (is_same) return;
      parameter.set_data(weight.seen.front().data());
      weight.seen.push_back(parameter);
    }
    parameter.requires_grad_(true);
  }

  at::Tensor packed(const at::Tensor& master) const {
    const QuantizeTensorOptions options{.scheme = options_.fake_quantize, .group_size = options_.fake_group_size};
    return quantize_tensor(master.cpu(), options).dequantize(at::kFloat);
  }

  Model model_;
  fs::path checkpoint_;
  FinetuneOptions options_;
  std::vector<Weight> weights_;
};

}  // namespace

std::unique_ptr<Learned> learned_weights(const Model& model, const fs::path& checkpoint,
                                         const FinetuneOptions& options) {
  return std::make_unique<Weights>(model, checkpoint, options);
}

}  // namespace halfbyte::convert
