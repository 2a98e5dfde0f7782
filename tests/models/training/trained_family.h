// A small model of a family whose adapters and weights all want gradients, and what differences say of those.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <halfbyte/backward.h>
#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/lora.h>

#include "models/architectures/model_config.h"
#include "tests/places.h"

namespace halfbyte::tests {

inline std::vector<std::filesystem::path> all_families() {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(data("families"))) out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

inline at::Tensor drawn(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}

// Of f at 0, from two distances on both sides: what is left out grows with the fourth power of them.
template <class Function>
double slope(const Function& f, double distance = 1) {
  return (8 * (f(distance) - f(-distance)) - (f(2 * distance) - f(-2 * distance))) / (12 * distance);
}

// A weight under two names, as a tied head's, is one.
struct Trained {
  std::string name;
  std::vector<at::Tensor> seen;  // in one memory

  const at::Tensor& values() const { return seen.front(); }
  at::Tensor gradient() const {  // undefined: none
    at::Tensor out;
    for (const at::Tensor& one : seen) {
      if (one.grad().defined()) out = out.defined() ? out + one.grad() : one.grad();
    }
    return out;
  }
};

using Rows = std::vector<training::Sequence>;

// Documents of these lengths, of which all tokens but some are scored.
inline training::Sequence sequence_of(const std::vector<std::int64_t>& lengths, std::int64_t first,
                                      std::int64_t vocab_size) {
  training::Sequence out;
  out.lengths = lengths;
  for (const std::int64_t length : lengths) {
    for (std::int64_t i = 0; i < length; ++i, ++first) {
      out.tokens.push_back(first * 7919 % vocab_size);
      out.labels.push_back(i % 5 == 3 ? training::kUnscored : (first + 1) * 7919 % vocab_size);
    }
  }
  return out;
}

class TrainedFamily {
 public:
  explicit TrainedFamily(const std::filesystem::path& directory, const DtypePolicy& policy = DtypePolicy::float32())
      : model_(load_low_bit(directory, {.dtype = policy, .compute = ComputeMode::kFloat})),
        lora_(model_.module(), {.rank = 2, .seed = 7}) {
    const at::NoGradGuard without;
    for (const auto& item : model_.module().named_parameters()) add(item.key(), item.value());
    make_heard();
    for (const Lora::Adapter& one : lora_.adapters()) {
      at::Tensor(one.b).uniform_(-0.05, 0.05, at::make_generator<at::CPUGeneratorImpl>(adapters_.size()));
      adapters_.push_back({one.name + " A", {one.a}});
      adapters_.push_back({one.name + " B", {one.b}});
    }
  }

  const models::CausalLM& model() const { return model_.module(); }
  const Lora& lora() const { return lora_; }
  const std::vector<Trained>& weights() const { return weights_; }
  const std::vector<Trained>& adapters() const { return adapters_; }
  std::vector<Trained> all() const {
    std::vector<Trained> out = weights_;
    out.insert(out.end(), adapters_.begin(), adapters_.end());
    return out;
  }

  void want_weights(bool is_wanted) const {
    for (const Trained& one : weights_) {
      for (const at::Tensor& seen : one.seen) at::Tensor(seen).requires_grad_(is_wanted);
    }
  }

  training::Sequence sequence(const std::vector<std::int64_t>& lengths, std::int64_t first) const {
    return sequence_of(lengths, first, model().config().vocab_size);
  }

  double loss(const Rows& rows) const {
    const Lora::Scope scope(lora_);
    return training::summed_loss(model(), pointers(rows));
  }
  // Gradients begin anew, or are added to.
  double backward(const Rows& rows, bool recomputes = true, bool adds = false) const {
    for (const Trained& one : all()) {
      for (const at::Tensor& seen : one.seen) {
        if (!adds) at::Tensor(seen).mutable_grad() = at::Tensor();
      }
    }
    const Lora::Scope scope(lora_);
    return training::backward(model(), pointers(rows), {.recomputes = recomputes});
  }
  // Of `all()`; undefined: none.
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> out;
    for (const Trained& one : all()) out.push_back(one.gradient());
    return out;
  }

 private:
  static std::vector<const training::Sequence*> pointers(const Rows& rows) {
    std::vector<const training::Sequence*> out;
    for (const training::Sequence& one : rows) out.push_back(&one);
    return out;
  }

  // Each in memory of its own.
  void add(const std::string& name, at::Tensor parameter) {
    const auto [found, is_new] = places_.emplace(parameter.const_data_ptr(), weights_.size());
    if (is_new) {
      kept_.push_back(parameter.data());  // whose address no other takes
      parameter.set_data(parameter.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous());
      places_.emplace(parameter.const_data_ptr(), weights_.size());
      weights_.push_back({name, {parameter}});
    } else if (Trained& one = weights_[found->second]; !one.values().is_same(parameter)) {
      parameter.set_data(one.values().data());
      one.seen.push_back(parameter);
    }
    parameter.requires_grad_(true);
  }

  // Layers beside what embeddings give, which random ones drown; and routers, whose choice is to be no matter of
  // rounding.
  void make_heard() const {
    const models::Naming& names = *model().config().naming;
    const std::string embedding = std::string(names.embedding) + ".weight";
    const std::string router = "." + std::string(names.router) + ".weight";
    for (const Trained& one : weights_) {
      at::Tensor x = one.values();
      if (one.name == embedding) x.mul_(0.25);
      if (one.name.ends_with(router)) x.copy_(drawn(x.sizes(), 3).mul(2 / std::sqrt(static_cast<double>(x.size(1)))));
    }
  }

  Model model_;
  Lora lora_;
  std::vector<Trained> weights_, adapters_;
  std::map<const void*, std::size_t> places_;
  std::vector<at::Tensor> kept_;
};

// How far each is moved: until f changes by its part of `change`, and by no more than `most` of its own values.
struct Reach {
  double change, most;
};

// What gradients say of a move of all `moved` in a random direction, less what differences of `f` say; in parts of what
// such moves change it by.
template <class Function>
double error_of_gradients(const std::vector<Trained>& moved, const Function& f, const Reach& reach,
                          std::uint64_t seed) {
  const at::NoGradGuard without;
  std::vector<at::Tensor> before, moves;
  double said = 0, squares = 0;
  const double part = reach.change / std::sqrt(static_cast<double>(moved.size()));
  for (const Trained& one : moved) {
    const at::Tensor gradient = one.gradient();
    const double slant = gradient.defined() ? gradient.norm().item<double>() : 0;
    const double size = std::max(one.values().square().mean().sqrt().item<double>(), 1e-3);
    const double step = std::min(reach.most * size, part / std::max(slant, 1e-12));
    before.push_back(one.values().clone());
    moves.push_back(drawn(one.values().sizes(), seed + moves.size()) * step);
    if (gradient.defined()) said += (gradient.to(at::kDouble) * moves.back()).sum().item<double>();
    squares += std::pow(step * slant, 2);
  }
  const auto at = [&](double times) {
    for (std::size_t i = 0; i < moved.size(); ++i) at::Tensor(moved[i].values()).copy_(before[i] + moves[i] * times);
    return static_cast<double>(f());
  };
  const double found = slope(at);
  at(0);
  return std::abs(found - said) / std::max(std::sqrt(squares), reach.change / 10);
}

}  // namespace halfbyte::tests
