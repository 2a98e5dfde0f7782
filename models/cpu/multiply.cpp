#include "models/cpu/multiply.h"

#include <algorithm>
#include <span>

#include <halfbyte/linear.h>

#include "models/modules/pass_watch.h"
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
  }
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

}  // namespace halfbyte::models::cpu
