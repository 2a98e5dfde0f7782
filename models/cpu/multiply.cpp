#include "models/cpu/multiply.h"

#include <algorithm>
#include <span>

#include <halfbyte/linear.h>

#include "models/cpu/costs.h"
#include "models/sessions/pass_watch.h"
#include "quant/activations.h"

namespace halfbyte::models::cpu {
namespace {

// Products whose weights' columns are in the same order go together.
void multiply_rows(ProductsView& view, const std::byte* input, Buffer& reordered) {
  const std::int64_t rows = view.products[0].arguments.rows, width = view.products[0].weight.in_features;
  for (std::size_t first = 0, end; first < view.count; first = end) {
    const std::int64_t* const order = view.orders[first];
    for (end = first + 1; end < view.count && view.orders[end] == order;) ++end;
    const std::byte* own = input;
    if (order) {
      std::byte* const out = reordered.at_least(static_cast<std::size_t>(rows * width * size_bytes(view.operand)));
      quant::reorder_columns({rows, width, order, input, out, view.operand});
      own = out;
    }
    for (std::size_t i = first; i < end; ++i) view.products[i].arguments.input = own;
    quant::linear(std::span<const quant::Product>(view.products).subspan(first, end - first));
  }
}

}  // namespace

void multiply(ProductsView& view, const std::byte* input, std::int64_t tokens, Buffer& reordered, Buffer* outputs) {
  const std::int64_t width = view.products[0].weight.in_features;
  std::int64_t columns = 0;
  for (std::size_t i = 0; i < view.count; ++i) {
    columns += view.out_features(i);
    outputs[i].floats(tokens * view.out_features(i));
    view.products[i].arguments.rows = tokens;
  }
  const WorkScope work(view.work, [&] { return cost_of(std::span(view.products).first(view.count)); });
  const std::int64_t step = rows_between_looks(tokens, width * columns);
  for (std::int64_t begin = 0; begin < tokens; begin += step) {
    PassWatch::check();
    for (std::size_t i = 0; i < view.count; ++i) {
      quant::LinearArguments& arguments = view.products[i].arguments;
      arguments.rows = std::min(step, tokens - begin);
      arguments.output = reinterpret_cast<std::byte*>(outputs[i].floats(0) + begin * view.out_features(i));
    }
    multiply_rows(view, input + begin * width * size_bytes(view.operand), reordered);
  }
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
