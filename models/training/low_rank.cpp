#include "models/training/low_rank.h"

#include <torch/csrc/autograd/custom_function.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>

#include <halfbyte/low_bit_tensor.h>
#include <halfbyte/operators.h>

#include "quant/gradients.h"
#include "quant/operators/once_differentiable.h"
#include "quant/operators/plain_memory.h"
#include "quant/operators/torch_dtype.h"
#include "quant/thread_pool.h"

namespace halfbyte::training {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// From this rank on LibTorch's products take less time than passes over memory.
constexpr std::int64_t kMostRank = 64;

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}).contiguous(); }
at::Tensor floats_of(const at::Tensor& x) { return rows_of(x).to(at::kFloat); }
// Shape: (out_features, rank) -> (rank, out_features).
at::Tensor turned(const at::Tensor& b) { return b.t().contiguous(); }

quant::ConstValues values_of(const at::Tensor& x) {
  return {static_cast<const std::byte*>(x.const_data_ptr()), from_torch(x.scalar_type()).value()};
}
quant::Values values_to(at::Tensor& x) {
  if (!x.defined()) return {nullptr, Dtype::kFloat32};
  return {static_cast<std::byte*>(x.mutable_data_ptr()), from_torch(x.scalar_type()).value()};
}
float* floats_to(at::Tensor& x) { return x.defined() ? x.mutable_data_ptr<float>() : nullptr; }

bool is_plain(const at::Tensor& x) {
  return operators::is_in_plain_memory(x) && operators::is_weight_dtype(x.scalar_type());
}

// A product's adapter: what it is given, and its matrices.
struct LowRankProduct {
  at::Tensor x, a, b;
  double scaling;

  bool has_kernels(const at::Tensor& result) const {
    return a.size(0) < kMostRank && is_plain(x) && is_plain(result) && a.scalar_type() == at::kFloat &&
           b.scalar_type() == at::kFloat;
  }

  quant::LowRank sizes(const at::Tensor& rows, const at::Tensor& a_rows, const at::Tensor& b_rows) const {
    return {rows.size(0),
            a.size(1),
            b.size(0),
            a.size(0),
            a_rows.const_data_ptr<float>(),
            b_rows.const_data_ptr<float>(),
            static_cast<float>(scaling)};
  }

  // Of what stands between the matrices.
  static std::int64_t hidden_rows(std::int64_t rows) {
    return (rows + quant::kLowRankRows - 1) / quant::kLowRankRows * quant::kLowRankRows;
  }

  // What stands between the matrices. Shape: (rows, or hidden_rows of them, rank), float32.
  at::Tensor add_to(at::Tensor result) const {
    if (!has_kernels(result) || !result.is_contiguous()) return add_by_torch(result.view({-1, result.size(-1)}));
    const at::Tensor rows = rows_of(x), a_rows = a.contiguous(), b_rows = turned(b);
    at::Tensor hidden = at::empty({hidden_rows(rows.size(0)), a.size(0)}, a.options().requires_grad(false));
    const quant::AmongOpenMp among_openmp;
    quant::add_low_rank({sizes(rows, a_rows, b_rows), values_of(rows), floats_to(hidden), values_to(result)});
    return hidden;
  }

  at::Tensor add_by_torch(at::Tensor rows) const {
    at::Tensor hidden = at::mm(floats_of(x), a.t()).mul_(scaling);
    rows.scalar_type() == at::kFloat ? rows.addmm_(hidden, b.t()) : rows.add_(at::mm(hidden, b.t()));
    return hidden;
  }

  struct Gradients {
    at::Tensor of_x, of_a, of_b;  // defined where they are wanted
    bool has_base = false;        // of_x holds gradients already
  };

  void backward(const at::Tensor& gradient, const at::Tensor& hidden, Gradients& out) const {
    const at::Tensor of_result = rows_of(gradient);
    if (!has_kernels(of_result) || hidden.size(0) != hidden_rows(of_result.size(0))) {
      return backward_by_torch(of_result.to(at::kFloat), hidden.narrow(0, 0, of_result.size(0)), out);
    }
    const at::Tensor rows = rows_of(x), a_rows = a.contiguous(), b_rows = turned(b);
    at::Tensor of_hidden = at::empty_like(hidden), of_b = out.of_b.defined() ? at::empty_like(b_rows) : at::Tensor();
    {
      const quant::AmongOpenMp among_openmp;
      quant::low_rank_gradients({sizes(rows, a_rows, b_rows), values_of(rows), values_of(of_result),
                                 hidden.const_data_ptr<float>(), floats_to(of_hidden), values_to(out.of_x),
                                 out.has_base, floats_to(out.of_a), floats_to(of_b)});
    }
    if (of_b.defined()) out.of_b = turned(of_b);
  }

  void backward_by_torch(const at::Tensor& of_result, const at::Tensor& hidden, Gradients& out) const {
    const at::Tensor of_hidden = at::mm(of_result, b).mul_(scaling);
    if (out.of_x.defined()) {
      const at::Tensor own = at::mm(of_hidden, a).view(x.sizes());
      out.of_x = (out.has_base ? own + out.of_x : own).to(x.scalar_type());
    }
    if (out.of_a.defined()) out.of_a = at::mm(of_hidden.t(), floats_of(x));
    if (out.of_b.defined()) out.of_b = at::mm(of_result.t(), hidden);
  }
};

struct KeptWeight : torch::CustomClassHolder {
  explicit KeptWeight(LowBitTensor given) : weight(std::move(given)) {}
  LowBitTensor weight;
};

// Of y = x W^T with respect to x. A gradient in float32 is rounded by the kernels.
at::Tensor input_gradient(const LowBitTensor& weight, const at::Tensor& gradient, at::ScalarType type) {
  const bool is_taken = gradient.scalar_type() == at::kFloat || gradient.scalar_type() == type;
  return operators::low_bit_linear_transposed(is_taken ? gradient : gradient.to(at::kFloat), weight.packed(),
                                              weight.in_features, type);
}

struct AddLowRank : torch::autograd::Function<AddLowRank> {
  static at::Tensor forward(AutogradContext* context, at::Tensor result, const at::Tensor& x, const at::Tensor& a,
                            const at::Tensor& b, double scaling, const LowBitTensor* weight) {
    const at::Tensor hidden = LowRankProduct{x, a, b, scaling}.add_to(result);
    context->save_for_backward({x, a, b, hidden});
    context->saved_data["scaling"] = scaling;
    if (weight) context->saved_data["weight"] = c10::IValue::make_capsule(c10::make_intrusive<KeptWeight>(*weight));
    context->mark_dirty({result});
    return result;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    variable_list out = operators::once_differentiable("a low-rank adapter", context, gradients,
                                                       [&] { return gradients_of(context, gradients); });
    out[0] = gradients[0];  // what is added to has all of it
    return out;
  }

  static variable_list gradients_of(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const LowRankProduct product{saved[0], saved[1], saved[2], context->saved_data["scaling"].toDouble()};
    const auto room = [&](std::size_t index, const at::Tensor& like) {
      return context->needs_input_grad(index) ? at::empty(like.sizes(), like.options().requires_grad(false))
                                              : at::Tensor();
    };
    LowRankProduct::Gradients out{{}, room(2, product.a), room(3, product.b)};
    if (const auto kept = context->saved_data.find("weight"); kept == context->saved_data.end()) {
      out.of_x = room(1, product.x);
    } else if (context->needs_input_grad(1)) {
      const auto& weight = static_cast<const KeptWeight&>(*kept->second.toCapsule()).weight;
      out.of_x = input_gradient(weight, gradients[0], product.x.scalar_type());
      out.has_base = true;
    }
    product.backward(gradients[0], saved[3], out);
    return {at::Tensor(), out.of_x, out.of_a, out.of_b, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor add_low_rank(const at::Tensor& result, const at::Tensor& x, const at::Tensor& a, const at::Tensor& b,
                        double scaling, const LowBitTensor* weight) {
  // With a weight, what came before in the graph is the product that this step stands for.
  return AddLowRank::apply(weight ? result.detach() : result, x, a, b, scaling, weight);
}

}  // namespace halfbyte::training
