// output = input * W^T + bias: chooses how each product is computed, and runs together those that share their input.
#include <halfbyte/linear.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "quant/gated_linear.h"
#include "quant/kernels/onednn/onednn.h"
#include "quant/linear_way.h"
#include "quant/next_products.h"
#include "quant/products/call.h"
#include "quant/rows_alike.h"
#include "quant/with_activations.h"
#include "quant/with_kernels.h"

namespace halfbyte::quant {

thread_local RowsKind RowsAlike::kind_ = RowsKind::kCounted;

namespace {

// A matrix without columns: the product is zero.
void write_bias(const Call& call) {
  std::vector<float> zeros(call.weight.out_features);
  for (std::size_t row = 0; row < call.rows; ++row) {
    std::ranges::fill(zeros, 0.0f);
    write_products(call, zeros.data(), zeros.size(), row, 1, 0, zeros.size());
  }
}

enum class Way { kNothing, kBias, kDirectFloat, kDirectInt8, kLanesInt8, kDirectWide, kLanesWide, kPanels, kOnednn };

bool is_int8(const Call& call) {
  return call.arithmetic == Arithmetic::kInt8 && call.table->int8 && int8_group_size(call.weight) != 0;
}

// What rows count as where the number decides how sums are rounded: as what their thread takes them to be. Products in
// 8-bit integers are added up in one order whatever way is taken: they count as many as there are. So are those of
// 16-bit activations, directly and by lanes, between which the true number may choose.
std::size_t counted_rows(const Call& call) {
  const RowsKind kind = is_int8(call) ? RowsKind::kCounted : RowsAlike::kind();
  if (kind == RowsKind::kMany) return std::max(call.rows, kInputRows);
  return kind == RowsKind::kFew && call.rows <= static_cast<std::size_t>(kDirectRows) ? 1 : call.rows;
}

Way way_of(const Call& call) {
  if (call.rows == 0 || call.weight.out_features == 0) return Way::kNothing;
  if (call.weight.in_features == 0) return Way::kBias;
  const std::size_t rows = counted_rows(call);
  if (is_wide(call) && rows <= call.table->wide->most_rows)
    return has_wide_lanes(call) ? Way::kLanesWide : Way::kDirectWide;
  if (is_int8(call) && has_int8_lanes(call)) return Way::kLanesInt8;
  if (has_panels(call, rows)) return Way::kPanels;
  if (is_int8(call)) return Way::kDirectInt8;
  return rows <= static_cast<std::size_t>(kDirectRows) ? Way::kDirectFloat : Way::kOnednn;
}

bool shares_input(Way way, const Call& a, const Call& b) {
  switch (way) {
    case Way::kDirectFloat:
      return a.weight.in_features == b.weight.in_features && shares_direct_input(a, b);
    case Way::kDirectInt8:
    case Way::kLanesInt8:
    case Way::kDirectWide:
    case Way::kLanesWide:
      return a.weight.in_features == b.weight.in_features && shares_int8_input(a, b);
    case Way::kPanels:
      return has_same_input(a, b) && shares_panels(a, b);
    default:
      return false;
  }
}

void run(Way way, std::span<const Call> calls) {
  switch (way) {
    case Way::kNothing:
      return;
    case Way::kBias:
      return write_bias(calls.front());
    case Way::kDirectFloat:
      return direct_float(calls);
    case Way::kDirectInt8:
      return direct_int8(calls);
    case Way::kLanesInt8:
      return lanes_int8(calls);
    case Way::kDirectWide:
      return direct_wide(calls);
    case Way::kLanesWide:
      return lanes_wide(calls);
    case Way::kPanels:
      return by_panels(calls);
    case Way::kOnednn:
      if (!by_onednn(calls.front())) direct_float(calls);
  }
}

void run(std::span<const Call> calls) {
  for (std::size_t begin = 0, end; begin < calls.size(); begin = end) {
    const Way way = way_of(calls[begin]);
    std::size_t rows = calls[begin].rows;
    for (end = begin + 1; end < calls.size(); ++end) {
      if (way_of(calls[end]) != way || !shares_input(way, calls[begin], calls[end])) break;
      if (has_same_input(calls[end - 1], calls[end])) continue;
      if (rows + calls[end].rows > kInputRows) break;
      rows += calls[end].rows;
    }
    run(way, calls.subspan(begin, end - begin));
  }
}

}  // namespace

void linear(const kernels::Table& table, std::span<const Product> products) {
  thread_local std::vector<Call> calls;
  for (std::size_t first = 0; first < products.size(); first += kMaxCalls) {
    calls.clear();
    for (const Product& product : products.subspan(first, std::min(kMaxCalls, products.size() - first)))
      calls.emplace_back(table, product.weight, product.arguments);
    // Experts have any number of rows each: those that go one way run together.
    if (!std::ranges::is_sorted(calls, {}, way_of)) std::ranges::stable_sort(calls, {}, way_of);
    run(calls);
  }
}

void linear(const kernels::Table& table, const WeightMatrix& weight, const LinearArguments& arguments) {
  const Call call(table, weight, arguments);
  run(std::span(&call, 1));
}

namespace {

// One matrix twice, if both are in it.
std::pair<Call, Call> gated_calls(const kernels::Table& table, std::span<const Product> products) {
  const auto call_of = [&](const Product& product) { return Call(table, product.weight, product.arguments); };
  return {call_of(products.front()), call_of(products.back())};
}

std::size_t gated_columns(const Call& first, std::span<const Product> products) {
  return first.weight.out_features / (products.size() == 1 ? 2 : 1);
}

bool are_gated_at_once(const Call& first, const Call& second, std::span<const Product> products) {
  const auto is_many = [](const Call& call) { return way_of(call) == Way::kPanels && !call.bias; };
  const std::size_t columns = gated_columns(first, products);
  if (columns == 0 || !is_many(first) || !has_gated_pieces(columns)) return false;
  return products.size() == 1 || (is_many(second) && second.weight.out_features == first.weight.out_features &&
                                  shares_input(Way::kPanels, first, second));
}

}  // namespace

bool linear_gated(const kernels::Table& table, const GatedLinear& a) {
  const auto [first, second] = gated_calls(table, a.products);
  if (!are_gated_at_once(first, second, a.products)) return false;
  const std::size_t columns = gated_columns(first, a.products);
  by_gated_panels({&first, &second, 0, a.products.size() == 1 ? columns : 0, columns,
                   table.activations->gate[gate_function(a.gate)], kernels::to_float(a.output_dtype),
                   reinterpret_cast<Byte*>(a.output)});
  return true;
}

bool linear_gated(const GatedLinear& arguments) { return linear_gated(kernels::kernels(), arguments); }

bool is_gated_at_once(std::span<const Product> products) {
  const auto [first, second] = gated_calls(kernels::kernels(), products);
  return are_gated_at_once(first, second, products);
}

std::size_t row_streams(const kernels::Table& table) noexcept {
  return table.int8 ? std::min(table.streams, table.int8->streams) : 1;
}

void fetch_while_waiting(std::span<const Product> products, std::int64_t rows) {
  std::array<ReadMatrix, WaitingFetch::kMostMatrices> matrices;
  const std::size_t count = std::min(products.size(), matrices.size());
  for (std::size_t i = 0; i < count; ++i) {
    const WeightMatrix& weight = products[i].weight;
    matrices[i] = {weight.rows, static_cast<std::size_t>(weight.row_bytes()),
                   static_cast<std::size_t>(weight.out_features)};
  }
  waiting_fetch().announce(std::span(matrices).first(count), static_cast<std::size_t>(max_threads()),
                           rows == 1 ? row_streams(kernels::kernels()) : 1);
}

bool is_by_own_kernels(const Product& product) {
  return way_of(Call(kernels::kernels(), product.weight, product.arguments)) != Way::kOnednn;
}

void linear(const WeightMatrix& weight, const LinearArguments& arguments) {
  linear(kernels::kernels(), weight, arguments);
}

void linear(std::span<const Product> products) { linear(kernels::kernels(), products); }

std::string_view name(Arithmetic arithmetic) noexcept {
  constexpr std::string_view kNames[] = {"float", "int8", "mixed"};
  return kNames[static_cast<std::size_t>(arithmetic)];
}

bool is_bfloat16_fast() {
  return kernels::kernels().bfloat16_columns && onednn::available() && onednn::supports(Dtype::kBfloat16);
}

bool is_int8_fast() { return kernels::kernels().is_int8_fast; }

}  // namespace halfbyte::quant
