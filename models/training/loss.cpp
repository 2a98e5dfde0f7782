#include "models/training/loss.h"

#include <functional>
#include <utility>

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>

#include "models/modules/decoder.h"
#include "models/modules/norm.h"
#include "models/modules/pass_watch.h"
#include "models/modules/session.h"
#include "quant/operators/translate.h"

namespace halfbyte::training {
namespace {

using models::CausalLM;
using models::Decoder;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Part = std::function<at::Tensor(const at::Tensor&)>;

// Tokens whose logits exist at a time.
constexpr std::int64_t kLogitRows = 128;

// part(x), run once without and once with gradients, of which those of what it reads beside x are added up there. A
// Part must give the same each time.
struct Recomputed : torch::autograd::Function<Recomputed> {
  struct Held : torch::CustomClassHolder {
    explicit Held(Part of) : part(std::move(of)) {}
    Part part;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const c10::intrusive_ptr<Held>& held) {
    const at::AutoGradMode without(false);
    context->save_for_backward({x});
    context->saved_data["part"] = c10::IValue::make_capsule(held);
    return held->part(x);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::AutoGradMode with(true);
    const auto capsule = context->saved_data["part"].toCapsule();
    const auto held = c10::static_intrusive_pointer_cast<Held>(capsule);
    at::Tensor x = context->get_saved_variables()[0].detach();
    x.requires_grad_(true);
    models::PassWatch::check();
    const at::Tensor y = held->part(x);
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
};

at::Tensor recomputed(const at::Tensor& x, Part part) {
  return Recomputed::apply(x, c10::make_intrusive<Recomputed::Held>(std::move(part)));
}

// A layer of one sequence, which no other pass sees: what it keeps of its keys goes with it.
at::Tensor layer_of(const CausalLM& model, std::size_t index, const at::Tensor& tokens, const at::Tensor& x) {
  models::Session session = model.make_session();
  const Decoder& decoder = model.decoder();
  models::Pass pass = decoder.has_layer_inputs() ? decoder.begin(tokens.unsqueeze(0), {&session}).pass
                                                 : decoder.make_pass({&session}, tokens.size(0));
  return translated([&] { return decoder.path() + "." + std::to_string(index) + ", given " + describe(x); },
                    [&] { return decoder.layers()[index]->forward(x, pass); });
}

at::Tensor embedded(const CausalLM& model, const at::Tensor& tokens) {
  models::Session session = model.make_session();
  return model.decoder().begin(tokens.unsqueeze(0), {&session}).stream;
}

}  // namespace

at::Tensor summed_loss(const CausalLM& model, const at::Tensor& tokens, const at::Tensor& labels) {
  const at::AutoGradMode with(true);
  at::Tensor x = embedded(model, tokens).detach().requires_grad_(true);  // so that the first layer's adapters count
  const std::size_t layers = model.decoder().layers().size();
  for (std::size_t i = 0; i < layers; ++i) {
    models::PassWatch::check();
    x = recomputed(x, [&model, i, tokens](const at::Tensor& input) { return layer_of(model, i, tokens, input); });
  }
  at::Tensor loss;
  const at::Tensor all = x.flatten(0, 1);
  for (std::int64_t begin = 0; begin < all.size(0); begin += kLogitRows) {
    const std::int64_t count = std::min(kLogitRows, all.size(0) - begin);
    const at::Tensor wanted = labels.narrow(0, begin, count);
    const at::Tensor part = recomputed(all.narrow(0, begin, count), [&model, wanted](const at::Tensor& rows) {
      const models::Norm* norm = model.decoder().norm();
      const at::Tensor logits = model.head((norm ? norm->forward(rows) : rows).unsqueeze(0)).squeeze(0);
      return at::cross_entropy_loss(logits, wanted, {}, at::Reduction::Sum, kUnscored);
    });
    loss = loss.defined() ? loss + part : part;
  }
  return loss;
}

}  // namespace halfbyte::training
