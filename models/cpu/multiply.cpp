#include "models/cpu/multiply.h"

#include <algorithm>
#include <span>

#include <halfbyte/linear.h>

#include "models/cpu/costs.h"
#include "models/cpu/gates.h"
#include "models/sessions/pass_watch.h"
#include "quant/activations.h"
#include "quant/gated_linear.h"
#include "quant/next_products.h"

namespace halfbyte::models::cpu {
namespace {

// The input in the order of a weight's columns.
const std::byte* in_order(const ProductsView& view, const std::int64_t* order, const std::byte* input,
                          Buffer& reordered) {
  if (!order) return input;
  const std::int64_t rows = view.products[0].arguments.rows, width = view.products[0].weight.in_features;
  std::byte* const out = reordered.at_least(static_cast<std::size_t>(rows * width * size_bytes(view.operand)));
  quant::reorder_columns({rows, width, order, input, out, view.operand});
  return out;
}

// Products whose weights' columns are in the same order go together.
void multiply_rows(ProductsView& view, const std::byte* input, Buffer& reordered) {
  for (std::size_t first = 0, end; first < view.count; first = end) {
    const std::int64_t* const order = view.orders[first];
    for (end = first + 1; end < view.count && view.orders[end] == order;) ++end;
    const std::byte* const own = in_order(view, order, input, reordered);
    for (std::size_t i = first; i < end; ++i) view.products[i].arguments.input = own;
    quant::linear(std::span<const quant::Product>(view.products).subspan(first, end - first));
  }
}

void set_tokens(ProductsView& view, std::int64_t tokens) {
  for (std::size_t i = 0; i < view.count; ++i) view.products[i].arguments.rows = tokens;
}

// body(first token, tokens) for slices of a pass, between which the watch is asked; the view's products have as many
// rows.
template <class Body>
void for_slices(ProductsView& view, std::int64_t tokens, const Body& body) {
  std::int64_t columns = 0;
  for (std::size_t i = 0; i < view.count; ++i) columns += view.out_features(i);
  const std::int64_t step = rows_between_looks(tokens, view.products[0].weight.in_features * columns);
  for (std::int64_t begin = 0; begin < tokens; begin += step) {
    PassWatch::check();
    const std::int64_t rows = std::min(step, tokens - begin);
    set_tokens(view, rows);
    body(begin, rows);
  }
}

WorkCost cost_of_all(const ProductsView& view) noexcept { return cost_of(std::span(view.products).first(view.count)); }

// Gate and up through the activation, at once. False where that is not possible, or no faster.
bool multiply_at_once(MlpView& mlp, const std::byte* input, Buffer& reordered, std::byte* output) {
  ProductsView& view = mlp.gate_up;
  const std::span<const quant::Product> products = std::span(view.products).first(view.count);
  if (view.orders[0] != view.orders[view.count - 1] || !quant::is_gated_at_once(products)) return false;
  const std::byte* const own = in_order(view, view.orders[0], input, reordered);
  for (std::size_t i = 0; i < view.count; ++i) view.products[i].arguments.input = own;
  return quant::linear_gated({products, gate_of(mlp.activation), output, mlp.down.operand});
}

void set_outputs(ProductsView& view, Buffer* outputs, std::int64_t first_token) {
  for (std::size_t i = 0; i < view.count; ++i)
    view.products[i].arguments.output =
        reinterpret_cast<std::byte*>(outputs[i].floats(0) + first_token * view.out_features(i));
}

}  // namespace

void fetch_next(std::span<const quant::Product> next, std::int64_t tokens) {
  if (tokens <= quant::kDirectRows) quant::fetch_while_waiting(next, tokens);
}

void fetch_next(const ProductsView* next, std::int64_t tokens) {
  fetch_next(next ? std::span(next->products).first(next->count) : std::span<const quant::Product>(), tokens);
}

void multiply(ProductsView& view, const std::byte* input, std::int64_t tokens, Buffer& reordered, Buffer* outputs) {
  const std::int64_t row_bytes = view.products[0].weight.in_features * size_bytes(view.operand);
  for (std::size_t i = 0; i < view.count; ++i) outputs[i].floats(tokens * view.out_features(i));
  set_tokens(view, tokens);
  const WorkScope work(view.work, [&] { return cost_of_all(view); });
  for_slices(view, tokens, [&](std::int64_t begin, std::int64_t) {
    set_outputs(view, outputs, begin);
    multiply_rows(view, input + begin * row_bytes, reordered);
  });
}

const std::byte* multiply_gated(MlpView& mlp, const std::byte* input, std::int64_t tokens, Workspace& workspace) {
  ProductsView& view = mlp.gate_up;
  const bool is_one = view.count == 1;
  const std::int64_t row_bytes = view.products[0].weight.in_features * size_bytes(view.operand);
  const std::int64_t size = view.out_features(0) / (is_one ? 2 : 1), out_bytes = size * size_bytes(mlp.down.operand);
  std::byte* const output = workspace.gated.at_least(static_cast<std::size_t>(tokens * out_bytes));
  Buffer* const products = workspace.products;
  set_tokens(view, tokens);
  const WorkScope work(view.work, [&] { return cost_of_all(view); });
  for_slices(view, tokens, [&](std::int64_t begin, std::int64_t rows) {
    const std::byte* const own = input + begin * row_bytes;
    if (multiply_at_once(mlp, own, workspace.reordered, output + begin * out_bytes)) return;
    for (std::size_t i = 0; i < view.count; ++i) products[i].floats(rows * view.out_features(i));
    set_outputs(view, products, 0);
    multiply_rows(view, own, workspace.reordered);
    const WorkScope gates(WorkKind::kGates);
    gate_into({mlp.activation, rows, size, mlp.down.operand}, products[0].floats(0),
              is_one ? nullptr : products[1].floats(0), output + begin * out_bytes);
  });
  return output;
}

namespace {

void multiply_in_slices(quant::Product product) {
  quant::LinearArguments& a = product.arguments;
  const std::int64_t rows = a.rows, in = product.weight.in_features, out = product.weight.out_features;
  const std::int64_t step = rows_between_looks(rows, in * out);
  for (std::int64_t begin = 0; begin < rows; begin += a.rows) {
    PassWatch::check();
    a.rows = std::min(step, rows - begin);
    quant::linear(std::span(&product, 1));
    if (a.input_rows)
      a.input_rows += a.rows;
    else
      a.input += a.rows * in * size_bytes(a.input_dtype);
    a.output += a.rows * out * size_bytes(a.output_dtype);
  }
}

}  // namespace

void multiply_watched(std::span<const quant::Product> products) {
  const auto work_of = [](const quant::Product& p) {
    return p.arguments.rows * p.weight.in_features * p.weight.out_features;
  };
  const WorkScope scope(WorkKind::kExperts, [&] { return cost_of(products); });
  const std::int64_t most = PassWatch::products_between_looks();
  for (std::size_t begin = 0, end; begin < products.size(); begin = end) {
    std::int64_t work = work_of(products[begin]);
    for (end = begin + 1; end < products.size() && work + work_of(products[end]) <= most; ++end)
      work += work_of(products[end]);
    if (work > most) {
      multiply_in_slices(products[begin]);
    } else {
      PassWatch::check();
      quant::linear(products.subspan(begin, end - begin));
    }
  }
}

}  // namespace halfbyte::models::cpu
