#include "models/cpu/views.h"

#include <algorithm>
#include <array>
#include <span>
#include <variant>

#include "models/cpu/experts.h"
#include "quant/operators/torch_dtype.h"
#include "quant/operators/weight_matrix.h"

namespace halfbyte::models::cpu {
namespace {

std::optional<quant::WeightMatrix> matrix_of(const LowBitTensor& weight) {
  return operators::plain_packed_matrix({weight.scheme, weight.out_features(), weight.in_features, weight.packed()});
}

std::optional<quant::WeightMatrix> matrix_of(const at::Tensor& weight) { return operators::plain_dense_matrix(weight); }

bool set(const Embedding& embedding, quant::WeightMatrix& view) {
  if (embedding.packed() && embedding.packed()->column_order) return false;
  const auto matrix = std::visit([](const auto& weight) { return matrix_of(weight); }, embedding.weight());
  if (matrix) view = *matrix;
  return matrix.has_value();
}

// False where it does not lie as kernels read it.
bool set_order(const Linear& linear, ProductsView& view) {
  if (!linear.column_order()) return true;
  const at::Tensor& order = *linear.column_order();
  if (!order.is_cpu() || order.scalar_type() != at::kLong || !order.is_contiguous()) return false;
  const std::int64_t* const columns = order.const_data_ptr<std::int64_t>();
  const auto is_same = [&](const std::int64_t* other) {
    return other && std::equal(columns, columns + order.numel(), other);
  };
  const auto before = std::span(view.orders).first(view.count);
  const auto found = std::ranges::find_if(before, is_same);
  view.orders[view.count] = found == before.end() ? columns : *found;
  return true;
}

// Whatever the order of its columns.
std::optional<quant::Product> any_product_of(const Linear& linear, std::optional<Dtype> operand) {
  const auto matrix = linear.matrix();
  if (!operand && linear.operand_dtype()) operand = from_torch(*linear.operand_dtype());
  if (!matrix || !operand || !is_weight_dtype(*operand)) return std::nullopt;
  quant::LinearArguments arguments{};
  arguments.input_dtype = *operand;
  arguments.output_dtype = Dtype::kFloat32;
  arguments.arithmetic = linear.arithmetic();
  if (const at::Tensor& bias = linear.bias_or_undefined(); bias.defined()) {
    if (!operators::is_plain(bias) || bias.numel() != matrix->out_features) return std::nullopt;
    arguments.bias = operators::bytes_of(bias);
    arguments.bias_dtype = *from_torch(bias.scalar_type());
  }
  return quant::Product{*matrix, arguments};
}

bool add(const Linear& linear, ProductsView& view) {
  const auto product = any_product_of(linear, std::nullopt);
  if (!product) return false;
  const quant::LinearArguments &first = view.products[0].arguments, &own = product->arguments;
  if (view.count > 0 && (view.operand != own.input_dtype || first.arithmetic != own.arithmetic ||
                         view.products[0].weight.in_features != product->weight.in_features)) {
    return false;
  }
  if (!set_order(linear, view)) return false;
  view.operand = own.input_dtype;
  view.products[view.count++] = *product;
  return true;
}

bool add(std::span<const std::shared_ptr<Linear>> linears, ProductsView& view) {
  for (const auto& linear : linears) {
    if (!add(*linear, view)) return false;
  }
  return true;
}

constexpr std::size_t kMostOnes = 4096;

// Of norms without a weight.
bool set_ones(const Norm& module, std::int64_t size, quant::Norm& norm) {
  static const std::vector<float> ones(kMostOnes, 1.0f);
  if (size > static_cast<std::int64_t>(kMostOnes)) return false;
  norm = {.weight = reinterpret_cast<const std::byte*>(ones.data()),
          .epsilon = static_cast<float>(module.epsilon()),
          .is_centred = module.is_centred()};
  return true;
}

// No module: no norm.
bool set(const Norm* module, std::int64_t size, quant::Norm& norm) {
  norm = {};
  if (!module) return true;
  const at::Tensor &weight = module->weight(), &bias = module->bias();
  if (!weight.defined()) return set_ones(*module, size, norm);
  if (!operators::is_plain(weight) || weight.numel() != size) return false;
  norm = {.weight = operators::bytes_of(weight),
          .dtype = *from_torch(weight.scalar_type()),
          .offset = static_cast<float>(module->offset()),
          .epsilon = static_cast<float>(module->epsilon()),
          .is_centred = module->is_centred()};
  if (!bias.defined()) return true;
  if (!operators::is_plain(bias) || bias.numel() != size || bias.scalar_type() != weight.scalar_type()) return false;
  norm.bias = operators::bytes_of(bias);
  return true;
}

// Kernels check no shapes: whether each product reads and gives as many columns as its neighbours have room for.
bool fits(const ProductsView& view, std::int64_t in_features, std::span<const std::int64_t> out_features) {
  const auto products = std::span(view.products).first(view.count);
  return std::ranges::equal(products, out_features, {},
                            [](const auto& product) { return product.weight.out_features; }) &&
         std::ranges::all_of(products, [&](const auto& product) { return product.weight.in_features == in_features; });
}

// What the kernels have no form for.
bool is_special(const Attention& attention) {
  const Norm* norm = attention.query_norm();
  // They take the norm of all heads by its root mean square alone.
  const bool is_centred_of_all =
      attention.norm() == QueryKeyNorm::kAllHeads && norm && (norm->is_centred() || norm->bias().defined());
  return is_centred_of_all || (attention.has_output_gate() && attention.layout() != QkvLayout::kSeparate);
}

// Whether its inputs' products are as wide as its heads.
bool fits_inputs(const ProductsView& view, const Attention& attention, std::int64_t hidden_size, std::int64_t queries,
                 std::int64_t keys) {
  if (attention.layout() != QkvLayout::kSeparate) return fits(view, hidden_size, std::array{queries + 2 * keys});
  const std::array all = {attention.has_output_gate() ? 2 * queries : queries, keys, keys};
  const std::size_t count = !attention.has_own_keys() ? 1 : attention.are_values_keys() ? 2 : 3;
  return fits(view, hidden_size, std::span(all).first(count));
}

bool set(const Attention& attention, std::int64_t hidden_size, LayerView& view) {
  const std::int64_t queries = attention.heads() * attention.head_dim();
  const std::int64_t keys = attention.kv_heads() * attention.head_dim();
  const bool is_of_all = attention.norm() == QueryKeyNorm::kAllHeads;
  if (!set(attention.query_norm(), is_of_all ? queries : attention.head_dim(), view.query_norm) ||
      !set(attention.key_norm(), is_of_all ? keys : attention.head_dim(), view.key_norm) ||
      !set(attention.value_norm(), attention.head_dim(), view.value_norm) || !add(attention.inputs(), view.inputs) ||
      !add(attention.output(), view.output))
    return false;
  if (attention.sinks().defined()) {
    const at::Tensor sinks = attention.sinks().to(at::kCPU, at::kFloat).contiguous();
    if (sinks.numel() != attention.heads()) return false;
    view.sinks.assign(sinks.const_data_ptr<float>(), sinks.const_data_ptr<float>() + sinks.numel());
  }
  return fits_inputs(view.inputs, attention, hidden_size, queries, keys) &&
         fits(view.output, queries, std::array{hidden_size});
}

bool set(const Mlp& mlp, std::int64_t hidden_size, LayerView& view) {
  if (mlp.activation() == Activation::kClamped) return false;
  if (!add(mlp.inputs(), view.gate_up) || !add(mlp.down(), view.down)) return false;
  const std::int64_t size = view.down.products[0].weight.in_features;
  const bool is_one = view.gate_up.count == 1;
  const std::array sizes = {is_one ? 2 * size : size, size};
  return fits(view.gate_up, hidden_size, std::span(sizes).first(is_one ? 1 : 2)) &&
         fits(view.down, size, std::array{hidden_size});
}

bool set(const DecoderLayer& layer, std::int64_t hidden_size, LayerView& view) {
  view = {};
  view.layer = &layer;
  view.inputs.work = WorkKind::kQkv;
  view.output.work = WorkKind::kAttentionOutput;
  view.gate_up.work = WorkKind::kGateUp;
  view.down.work = WorkKind::kDown;
  if (layer.attention() && !is_special(*layer.attention())) view.attention = layer.attention();
  const bool has_norms = set(layer.input_norm(), hidden_size, view.input_norm) &&
                         set(layer.mlp_norm(), hidden_size, view.mlp_norm) &&
                         set(layer.attention_output_norm(), hidden_size, view.attention_output_norm) &&
                         set(layer.mlp_output_norm(), hidden_size, view.mlp_output_norm);
  if (!has_norms || (view.attention && !set(*view.attention, hidden_size, view))) return false;
  view.mlp = dynamic_cast<const Mlp*>(&layer.feed_forward());
  view.experts = view.mlp ? nullptr : dynamic_cast<const MixtureOfExperts*>(&layer.feed_forward());
  if (view.experts && !has_form(*view.experts)) view.experts = nullptr;
  return !view.mlp || set(*view.mlp, hidden_size, view);
}

}  // namespace

std::optional<quant::Product> product_of(const Linear& linear, std::optional<Dtype> operand) {
  return linear.column_order() ? std::nullopt : any_product_of(linear, operand);
}

bool view(const Decoder& decoder, ModelView& out) {
  const std::int64_t hidden_size = decoder.hidden_size();
  if (decoder.has_embedding() && (!set(decoder.embedding(), out.embedding) || out.embedding.in_features != hidden_size))
    return false;
  out.layers.resize(decoder.layers().size());
  for (std::size_t i = 0; i < out.layers.size(); ++i) {
    if (!set(*decoder.layers()[i], hidden_size, out.layers[i])) return false;
  }
  return set(decoder.norm(), hidden_size, out.norm);
}

}  // namespace halfbyte::models::cpu
