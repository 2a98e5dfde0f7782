#include <halfbyte/backward.h>

#include <algorithm>
#include <map>
#include <vector>

#include <torch/csrc/autograd/autograd.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "models/modules/decoder.h"
#include "models/modules/linear.h"
#include "models/modules/norm.h"
#include "models/sessions/pass_watch.h"
#include "models/training/cross_entropy.h"
#include "models/training/documents.h"
#include "quant/operators/translate.h"

namespace halfbyte::training {
namespace {

using models::CausalLM;
using models::Decoder;
using models::SeenKeys;

// Logits that exist at a time, and the fewest rows of them that a product is made for.
constexpr std::int64_t kLogits = std::int64_t{1} << 24;
constexpr std::int64_t kLeastLogitRows = 64;

// A tensor from which gradients are wanted and no further.
at::Tensor leaf(const at::Tensor& x) { return x.detach().requires_grad_(true); }

// Where gradients begin, and those.
class Roots {
 public:
  void add(const at::Tensor& result, const at::Tensor& gradient) {
    if (!result.requires_grad() || !gradient.defined()) return;
    results_.push_back(result);
    gradients_.push_back(gradient.to(result.scalar_type()));
  }
  void backward() const {
    if (!results_.empty()) torch::autograd::backward(results_, gradients_);
  }

 private:
  std::vector<at::Tensor> results_, gradients_;
};

// By the layer that makes them.
using SharedKeys = std::map<std::int64_t, SeenKeys>;

SharedKeys shared_of(const models::ModelConfig& config) {
  SharedKeys out;
  for (const models::LayerConfig& layer : config.layers) {
    if (layer.keys_of >= 0) out[layer.keys_of] = {};
  }
  return out;
}

std::int64_t number(std::size_t index) { return static_cast<std::int64_t>(index); }

SeenKeys keys_of(std::size_t index, const SharedKeys& shared) {
  const auto found = shared.find(number(index));
  return found == shared.end() ? SeenKeys{} : found->second;
}

class Run {
 public:
  Run(const CausalLM& model, std::span<const Sequence* const> sequences, const BackwardOptions& options)
      : model_(model),
        pass_(model, sequences),
        rows_(rows_of(sequences)),
        options_(options),
        shared_(shared_of(model.config())) {}

  double loss() {
    const at::NoGradGuard without;
    begin();
    at::Tensor x = begun_.stream;
    SharedKeys shared = shared_;
    for (std::size_t i = 0; i < layers(); ++i) x = layer(i, x, begun_.inputs, shared);
    return head(x, nullptr);
  }

  double backward() {
    {
      const at::AutoGradMode with(true);
      begin();
    }
    if (begun_.inputs.defined()) inputs_ = leaf(begun_.inputs);
    at::Tensor x = begun_.stream.detach();
    for (std::size_t i = 0; i < layers(); ++i) x = forward(i, x);
    at::Tensor gradient = at::zeros(x.sizes(), x.options());
    const double loss = head(x, &gradient);
    x = at::Tensor();
    for (std::size_t i = layers(); i-- > 0;) gradient = backward(i, gradient);
    finish(gradient);
    return loss;
  }

 private:
  std::size_t layers() const { return model_.decoder().layers().size(); }

  void begin() {
    model_.decoder().check_all_layers();
    std::vector<models::Session> sessions;
    models::Pass pass = pass_.begin(sessions);
    models::Decoder::Begun begun = model_.decoder().begin(rows_.tokens.to(model_.device()), pass.sessions);
    begun_ = {begun.stream, begun.pass.layer_inputs};
  }

  at::Tensor layer(std::size_t index, const at::Tensor& x, const at::Tensor& inputs, SharedKeys& shared) const {
    models::PassWatch::check();
    std::vector<models::Session> sessions;
    models::Pass pass = pass_.begin(sessions);
    pass.layer_inputs = inputs;
    pass.shared_keys = &shared;
    const Decoder& decoder = model_.decoder();
    return translated([&] { return decoder.path() + "." + std::to_string(index) + ", given " + describe(x); },
                      [&] { return decoder.layers()[index]->forward(x, pass); });
  }

  at::Tensor forward(std::size_t index, const at::Tensor& x) {
    Kept kept{leaf(x), {}};
    const at::AutoGradMode with(!options_.recomputes);
    SharedKeys shared = shared_;
    const at::Tensor y = layer(index, kept.input, inputs_, shared);
    if (!options_.recomputes) kept = {kept.input, y, keys_of(index, shared)};
    kept_.push_back(std::move(kept));
    if (const auto own = shared_.find(number(index)); own != shared_.end()) {
      // In float32, as what many layers add up to.
      const auto shown = [](const at::Tensor& made) { return leaf(made.to(at::kFloat)); };
      const SeenKeys made = keys_of(index, shared);
      own->second = {shown(made.keys), shown(made.values)};
    }
    return y.detach();
  }

  // Of the layer's output to that of its input.
  at::Tensor backward(std::size_t index, const at::Tensor& gradient) {
    const at::AutoGradMode with(true);
    Kept kept = std::move(kept_.back());
    kept_.pop_back();
    if (!kept.output.defined()) {
      SharedKeys shared = shared_;
      kept.output = layer(index, kept.input, inputs_, shared);
      kept.keys = keys_of(index, shared);
    }
    Roots roots;
    roots.add(kept.output, gradient);
    if (const auto own = shared_.find(number(index)); own != shared_.end()) {
      roots.add(kept.keys.keys, own->second.keys.grad());
      roots.add(kept.keys.values, own->second.values.grad());
      own->second = {};
    }
    roots.backward();
    return kept.input.grad();
  }

  // To what was made of the tokens themselves.
  void finish(const at::Tensor& gradient) const {
    Roots roots;
    roots.add(begun_.stream, gradient);
    if (inputs_.defined()) roots.add(begun_.inputs, inputs_.grad());
    roots.backward();
  }

  // `gradient`: of x, to be filled; null: none is wanted.
  double head(const at::Tensor& x, at::Tensor* gradient) const {
    const at::Tensor labels = rows_.labels.flatten().to(x.device());
    const at::Tensor scored = labels.ne(kUnscored).nonzero().squeeze(1);
    const at::Tensor all = x.flatten(0, 1);
    const std::int64_t step = std::max(kLeastLogitRows, kLogits / model_.config().vocab_size);
    double loss = 0;
    for (std::int64_t begin = 0; begin < scored.size(0); begin += step) {
      models::PassWatch::check();
      const at::Tensor which = scored.narrow(0, begin, std::min(step, scored.size(0) - begin));
      const at::Tensor rows = leaf(all.index_select(0, which));
      loss += block(rows, labels.index_select(0, which), gradient != nullptr);
      if (gradient) gradient->flatten(0, 1).index_copy_(0, which, rows.grad());
    }
    return loss;
  }

  double block(const at::Tensor& rows, const at::Tensor& labels, bool with_gradient) const {
    const at::AutoGradMode mode(with_gradient);
    const models::Norm* norm = model_.decoder().norm();
    const at::Tensor given = norm ? norm->forward(rows) : rows;
    const at::Tensor products = model_.lm_head().multiply(given, at::kFloat);
    at::Tensor values = products.detach();
    const double loss = [&] {
      const at::NoGradGuard without;
      return cross_entropy_(values, labels, model_.config(), options_.scale);
    }();
    if (with_gradient) torch::autograd::backward({products}, {values});
    return loss;
  }

  struct Kept {
    at::Tensor input;
    at::Tensor output = {};  // undefined where the layer is run again
    SeenKeys keys = {};      // as output, of a layer to whose keys others attend
  };
  struct Begun {
    at::Tensor stream, inputs;  // inputs: what layers are given beside the stream
  };

  const CausalLM& model_;
  DocumentPass pass_;  // checks the sequences
  Rows rows_;
  BackwardOptions options_;
  Begun begun_;
  at::Tensor inputs_;
  SharedKeys shared_;  // leaves that later layers attend to
  std::vector<Kept> kept_;
};

}  // namespace

double backward(const CausalLM& model, std::span<const Sequence* const> sequences, const BackwardOptions& options) {
  const c10::impl::ExcludeDispatchKeyGuard by_the_policy_alone(c10::autocast_dispatch_keyset);
  return Run(model, sequences, options).backward();
}

double summed_loss(const CausalLM& model, std::span<const Sequence* const> sequences) {
  const c10::impl::ExcludeDispatchKeyGuard by_the_policy_alone(c10::autocast_dispatch_keyset);
  return Run(model, sequences, {}).loss();
}

}  // namespace halfbyte::training
