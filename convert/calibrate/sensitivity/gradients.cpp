#include "convert/calibrate/sensitivity/gradients.h"

#include <algorithm>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "models/modules/linear.h"
#include "models/modules/tap.h"
#include "models/sessions/pass_watch.h"

namespace halfbyte::convert::calibrate {
namespace {

using Sequences = std::vector<at::Tensor>;  // (1, tokens, hidden_size) each

class Sweeps {
 public:
  Sweeps(LayerRunner& runner, const GradientOptions& options) : runner_(runner), options_(options) {}

  Gradients run(const ModelHead& head, const at::Tensor& hidden, std::int64_t first) {
    given_.push_back(hidden.split(1));
    for (std::int64_t layer = 0; layer < layers(); ++layer) forward(layer);
    at::Generator random = at::detail::createCPUGenerator(options_.seed);
    for (const at::Tensor& last : given_.back()) gradients_.push_back(head.drawn_gradient(last, first, random));
    for (std::int64_t layer = layers(); layer-- > 0;) back(layer);
    return std::move(out_);
  }

 private:
  std::int64_t layers() const { return runner_.config().num_hidden_layers; }

  void done() {
    ++done_;
    if (options_.layers_done) options_.layers_done(done_);
  }

  void forward(std::int64_t layer) {
    runner_.load(layer);
    Sequences next;
    for (const at::Tensor& one : given_.back()) {
      models::PassWatch::check();
      next.push_back(runner_.forward(one));
    }
    given_.push_back(std::move(next));
    done();
  }

  void back(std::int64_t layer) {
    given_.pop_back();  // what the layer above was given
    runner_.load(layer);
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      models::PassWatch::check();
      gradients_[i] = back(given_.back()[i], gradients_[i], i);
    }
    done();
  }

  at::Tensor back(const at::Tensor& input, const at::Tensor& gradient, std::size_t sequence) {
    const at::AutoGradMode with_gradients(true);
    const at::Tensor x = input.detach().clone().requires_grad_(true);
    std::vector<std::pair<const models::Linear*, at::Tensor>> results;
    {
      const models::Tap tap([&](const models::Linear& linear, const at::Tensor&, const at::Tensor& result) {
        if (!options_.is_wanted(linear) || !result.requires_grad()) return;
        result.retain_grad();
        results.emplace_back(&linear, result);
      });
      runner_.forward(x).backward(gradient);
    }
    for (const auto& [linear, result] : results) {
      if (result.grad().defined()) keep(*linear, result.grad(), sequence);
    }
    return x.grad();
  }

  void keep(const models::Linear& linear, const at::Tensor& gradient, std::size_t sequence) {
    const at::AutoGradMode without_gradients(false);
    ProductGradients& out = out_[linear.path()];
    const at::Tensor all = gradient.flatten(0, -2);
    if (out.of_sequences.empty()) {
      out.of_sequences.resize(gradients_.size());
      out.squares = at::zeros({all.size(1)}, at::kFloat);
    }
    out.squares.add_(all.square().sum(0));
    out.of_sequences[sequence] = all.index_select(1, sampled_rows(all.size(1)));
  }

  LayerRunner& runner_;
  const GradientOptions& options_;
  std::vector<Sequences> given_;  // to each layer, as far as the sweep is
  Sequences gradients_;
  Gradients out_;
  std::int64_t done_ = 0;
};

}  // namespace

at::Tensor sampled_rows(std::int64_t rows) {
  const std::int64_t count = std::min(rows, kSampledRows);
  return at::arange(count, at::kLong).mul_(rows).floor_divide_(count);
}

Gradients gradients_of(LayerRunner& runner, const ModelHead& head, const at::Tensor& hidden, std::int64_t first,
                       const GradientOptions& options) {
  return Sweeps(runner, options).run(head, hidden, first);
}

}  // namespace halfbyte::convert::calibrate
