// One token of each sequence through a decoder layer of transformers, with nothing of Python between its operators.
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <ATen/ops/add.h>

#include <halfbyte/operators.h>

#include "quant/operators/checks.h"
#include "tools/python/packed.h"
#include "tools/python/parts.h"

namespace halfbyte::python {
namespace {

namespace py = pybind11;
using Tensors = std::vector<at::Tensor>;

struct Norm {
  at::Tensor weight;
  double epsilon;

  at::Tensor operator()(const at::Tensor& x) const { return operators::rms_norm(x, weight, epsilon); }
};

std::optional<Norm> norm_of(const py::object& given) {
  if (given.is_none()) return std::nullopt;
  const auto [weight, epsilon] = given.cast<std::tuple<at::Tensor, double>>();
  return Norm{weight, epsilon};
}

// Products of one input: in one call where the weights are alike.
class Linears {
 public:
  // Of each: the fields of a LowBitTensor, its bias, and the arithmetic.
  explicit Linears(const py::list& given) {
    for (const py::handle row : given) {
      const auto [fields, bias, arithmetic] = row.cast<std::tuple<py::dict, std::optional<at::Tensor>, std::string>>();
      const LowBitTensor tensor = tensor_of(fields);
      weights_.push_back({tensor.codes, tensor.scales, tensor.scheme->name, tensor.group_size, tensor.zero_points,
                          tensor.offsets, tensor.row_scales});
      orders_.push_back(tensor.column_order);
      biases_.push_back(bias);
      arithmetics_.push_back(operators::check_arithmetic("low_bit_linears", arithmetic));
      are_alike_ = are_alike_ && !tensor.column_order && weights_[0].scheme == weights_.back().scheme &&
                   weights_[0].group_size == tensor.group_size && arithmetics_[0] == arithmetics_.back();
    }
  }

  Tensors operator()(const at::Tensor& x, std::optional<at::ScalarType> out_dtype = std::nullopt) const {
    if (are_alike_) return operators::low_bit_linears(x, weights_, biases_, out_dtype, arithmetics_.at(0));
    Tensors out;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const at::Tensor columns = orders_[i] ? x.index_select(-1, *orders_[i]) : x;
      out.push_back(operators::low_bit_linear(columns, weights_[i], biases_[i], out_dtype, arithmetics_[i]));
    }
    return out;
  }

 private:
  std::vector<operators::PackedWeight> weights_;
  std::vector<std::optional<at::Tensor>> orders_, biases_;
  std::vector<quant::Arithmetic> arithmetics_;
  bool are_alike_ = true;
};

class LayerStep {
 public:
  struct Attention {
    std::optional<Norm> input_norm, query_norm, key_norm;
    Linears projections, output;
    std::int64_t head_dim;
    double scale;
  };
  struct Mlp {
    std::optional<Norm> norm;
    Linears gate_up, down;
    std::string activation;
  };

  LayerStep(at::ScalarType dtype, Attention attention, std::optional<Mlp> mlp)
      : dtype_(dtype), attention_(std::move(attention)), mlp_(std::move(mlp)) {}

  bool has_mlp() const noexcept { return mlp_.has_value(); }

  // Whether the token of each sequence may go this way: no tensor is of another dtype, as norms cast by themselves are.
  // Shapes: hidden (batch, 1, size), cosine and sine (batch or 1, 1, head_dim).
  bool fits(const at::Tensor& hidden, const at::Tensor& cosine, const at::Tensor& sine) const {
    const auto is_of_dtype = [&](const at::Tensor& x) {
      return x.dim() == 3 && x.size(1) == 1 && x.is_cpu() && x.scalar_type() == dtype_;
    };
    const auto is_table = [&](const at::Tensor& x) {
      return is_of_dtype(x) && x.size(2) == attention_.head_dim && (x.size(0) == 1 || x.size(0) == hidden.size(0));
    };
    return is_of_dtype(hidden) && is_table(cosine) && is_table(sine) && cosine.size(0) == sine.size(0) && has_norms();
  }

  // Turned queries and keys, and values. Shape: (batch, heads, 1, head_dim) each.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> heads(const at::Tensor& hidden, const at::Tensor& cosine,
                                                       const at::Tensor& sine) const {
    const Tensors rows = attention_.projections((*attention_.input_norm)(hidden));
    const auto of = [&](std::size_t index) { return rows[index].view({hidden.size(0), -1, 1, attention_.head_dim}); };
    const auto normed = [](const std::optional<Norm>& norm, const at::Tensor& x) { return norm ? (*norm)(x) : x; };
    auto [query, key] = operators::rotary_embedding(normed(attention_.query_norm, of(0)),
                                                    normed(attention_.key_norm, of(1)), cosine, sine);
    return {query, key, of(2)};
  }

  // Shapes: as halfbyte.decode_attention's.
  at::Tensor attended(const at::Tensor& hidden, const at::Tensor& query, const at::Tensor& keys,
                      const at::Tensor& values, const std::optional<at::Tensor>& mask) const {
    return added(hidden, operators::decode_attention(query, keys, values, attention_.scale, mask));
  }

  // `heads` as attention gives it: (batch, 1, heads, head_dim).
  at::Tensor added(const at::Tensor& hidden, const at::Tensor& heads) const {
    return hidden.add(attention_.output(heads.flatten(2))[0]);
  }

  at::Tensor fed(const at::Tensor& hidden) const {
    const Tensors rows = mlp_->gate_up((*mlp_->norm)(hidden), at::kFloat);
    const at::Tensor between = operators::gated_product(rows[0], rows[1], mlp_->activation, hidden.scalar_type());
    return hidden.add(mlp_->down(between)[0]);
  }

 private:
  bool has_norms() const {
    const auto suits = [&](const std::optional<Norm>& norm) {
      return !norm || (norm->weight.is_cpu() && norm->weight.scalar_type() == dtype_);
    };
    return suits(attention_.input_norm) && suits(attention_.query_norm) && suits(attention_.key_norm) &&
           (!mlp_ || suits(mlp_->norm));
  }

  at::ScalarType dtype_;
  Attention attention_;
  std::optional<Mlp> mlp_;
};

LayerStep make(at::ScalarType dtype, const py::dict& attention, const std::optional<py::dict>& mlp) {
  LayerStep::Attention first{norm_of(attention["norm"]),       norm_of(attention["query_norm"]),
                             norm_of(attention["key_norm"]),   Linears(attention["projections"]),
                             Linears(attention["output"]),     attention["head_dim"].cast<std::int64_t>(),
                             attention["scale"].cast<double>()};
  std::optional<LayerStep::Mlp> second;
  if (mlp) {
    second.emplace(LayerStep::Mlp{norm_of((*mlp)["norm"]), Linears((*mlp)["gate_up"]), Linears((*mlp)["down"]),
                                  (*mlp)["activation"].cast<std::string>()});
  }
  return {dtype, std::move(first), std::move(second)};
}

}  // namespace

void add_layer_step(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<LayerStep>(module, "LayerStep")
      .def(py::init(&make), py::arg("dtype"), py::arg("attention"), py::arg("mlp"))
      .def_property_readonly("has_mlp", &LayerStep::has_mlp)
      .def("fits", &LayerStep::fits)
      .def("heads", &LayerStep::heads, Released())
      .def("attended", &LayerStep::attended, Released())
      .def("added", &LayerStep::added, Released())
      .def("fed", &LayerStep::fed, Released());
}

}  // namespace halfbyte::python
