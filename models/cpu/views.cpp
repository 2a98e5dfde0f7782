#include "models/cpu/views.h"

#include <algorithm>

#include "models/cpu/gates.h"

namespace halfbyte::models::cpu {
namespace {

constexpr std::size_t kMostOnes = 4096;

bool fits(const ProductsView& view, std::int64_t in_features, std::span<const std::int64_t> out_features) {
  const auto products = std::span(view.products).first(view.count);
  return std::ranges::equal(products, out_features, {},
                            [](const auto& product) { return product.weight.out_features; }) &&
         std::ranges::all_of(products, [&](const auto& product) { return product.weight.in_features == in_features; });
}

// Whether its inputs' products are as wide as its heads.
bool fits_inputs(const AttentionView& view, std::int64_t hidden_size, std::int64_t queries, std::int64_t keys) {
  const AttentionSettings& set = view.settings;
  if (set.layout == QkvLayout::kFusedPerHead && set.kv_heads != set.heads) return false;
  if (set.layout != QkvLayout::kSeparate) return fits(view.inputs, hidden_size, std::array{queries + 2 * keys});
  const std::array all = {set.has_output_gate ? 2 * queries : queries, keys, keys};
  const std::size_t count = !set.has_own_keys() ? 1 : set.are_values_keys ? 2 : 3;
  return fits(view.inputs, hidden_size, std::span(all).first(count));
}

}  // namespace

bool ProductsView::add(const quant::Product& product, std::span<const std::int64_t> order) {
  const quant::LinearArguments &first = products[0].arguments, &own = product.arguments;
  if (count == products.size()) return false;
  if (count > 0 && (operand != own.input_dtype || first.arithmetic != own.arithmetic ||
                    products[0].weight.in_features != product.weight.in_features)) {
    return false;
  }
  const auto is_same = [&](const std::int64_t* other) {
    return other && std::ranges::equal(order, std::span(other, order.size()));
  };
  const auto before = std::span(orders).first(count);
  const auto found = order.empty() ? before.end() : std::ranges::find_if(before, is_same);
  orders[count] = order.empty() ? nullptr : found == before.end() ? order.data() : *found;
  operand = own.input_dtype;
  products[count++] = product;
  return true;
}

bool set_ones(std::int64_t size, quant::Norm& norm) {
  static const std::vector<float> ones(kMostOnes, 1.0f);
  norm.weight = reinterpret_cast<const std::byte*>(ones.data());
  return size <= static_cast<std::int64_t>(kMostOnes);
}

// They take the norm of all heads by its root mean square alone.
bool has_form(const AttentionSettings& settings, bool is_centred) noexcept {
  return !(settings.norm == QueryKeyNorm::kAllHeads && is_centred) &&
         !(settings.has_output_gate && settings.layout != QkvLayout::kSeparate);
}

bool fits(const AttentionView& view, std::int64_t hidden_size) {
  const AttentionSettings& set = view.settings;
  const std::int64_t queries = set.heads * set.head_dim, keys = set.kv_heads * set.head_dim;
  return fits_inputs(view, hidden_size, queries, keys) && fits(view.output, queries, std::array{hidden_size});
}

bool fits(const MlpView& view, std::int64_t hidden_size) {
  if (!has_gate(view.activation)) return false;
  const std::int64_t size = view.down.products[0].weight.in_features;
  const bool is_one = view.gate_up.count == 1;
  const std::array sizes = {is_one ? 2 * size : size, size};
  return fits(view.gate_up, hidden_size, std::span(sizes).first(is_one ? 1 : 2)) &&
         fits(view.down, size, std::array{hidden_size});
}

}  // namespace halfbyte::models::cpu
