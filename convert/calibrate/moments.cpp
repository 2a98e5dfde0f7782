#include "convert/calibrate/moments.h"

#include <algorithm>
#include <string_view>

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros.h>

#include <halfbyte/linear.h>

#include "convert/calibrate/expert_path.h"
#include "models/modules/linear.h"
#include "models/sessions/pass_watch.h"

namespace halfbyte::convert::calibrate {
namespace {

// Columns that are multiplied at once: what lies wholly below the diagonal is left out.
constexpr std::int64_t kPanel = 512;

// sums += x^T y. A product of bfloat16 is rounded once, after it was summed in float32.
void add_product(const at::Tensor& x, const at::Tensor& y, at::Tensor& sums) {
  const bool is_rounded = x.scalar_type() != sums.scalar_type();
  is_rounded ? sums.add_(at::mm(x.t(), y)) : sums.addmm_(x.t(), y);
}

// Where the panels of a sum begin.
std::int64_t panels_of(std::int64_t columns) { return (columns + kPanel - 1) / kPanel; }

bool is_own(const std::vector<int>& owners, std::int64_t panel, int own) {
  return owners.empty() || owners[static_cast<std::size_t>(panel)] == own;
}

// The upper half of sums += x^T x.
void add_squares(const at::Tensor& x, at::Tensor& sums, const std::vector<int>& owners, int own) {
  const std::int64_t columns = x.size(1);
  for (std::int64_t panel = 0; panel < panels_of(columns); ++panel) {
    if (!is_own(owners, panel, own)) continue;
    models::PassWatch::check();
    const std::int64_t begin = panel * kPanel, count = std::min(kPanel, columns - begin);
    at::Tensor to = sums.narrow(0, begin, count).narrow(1, begin, columns - begin);
    add_product(x.narrow(1, begin, count), x.narrow(1, begin, columns - begin), to);
  }
}

// sums += change^T x.
void add_drift(const at::Tensor& change, const at::Tensor& x, at::Tensor& sums, const std::vector<int>& owners,
               int own) {
  const std::int64_t columns = x.size(1);
  for (std::int64_t panel = 0; panel < panels_of(columns); ++panel) {
    if (!is_own(owners, panel, own)) continue;
    models::PassWatch::check();
    const std::int64_t begin = panel * kPanel, count = std::min(kPanel, columns - begin);
    at::Tensor to = sums.narrow(0, begin, count);
    add_product(change.narrow(1, begin, count), x, to);
  }
}

}  // namespace

bool is_same_input(const at::Tensor& held, const at::Tensor& input) {
  return held.defined() && held.is_same_size(input) && held.data_ptr() == input.data_ptr();
}

InputRows rows_of(const at::Tensor& input, const at::Tensor& original, at::ScalarType factors) {
  const std::int64_t columns = input.size(-1);
  InputRows out{input.reshape({-1, columns}).to(factors), {}};
  if (original.defined()) out.change = original.to(at::kFloat).sub(input).reshape({-1, columns}).to(factors);
  return out;
}

bool has_fast_bfloat16() {
  const std::string_view isa = quant::isa_name();
  return isa == "avx512_bf16" || isa == "amx_bf16";
}

at::Tensor Part::moments() const {
  const at::Tensor upper = sums.triu();
  return upper + upper.triu(1).t();
}

at::Tensor Part::take_moments() {
  at::Tensor out = std::move(sums);
  sums = at::Tensor();
  for (std::int64_t begin = 0, size = out.size(0); begin < size; begin += kPanel) {
    const std::int64_t count = std::min(kPanel, size - begin), end = begin + count;
    at::Tensor corner = out.narrow(0, begin, count).narrow(1, begin, count);
    const at::Tensor upper = corner.triu();
    corner.copy_(upper + upper.triu(1).t());
    out.narrow(0, end, size - end)
        .narrow(1, begin, count)
        .copy_(out.narrow(0, begin, count).narrow(1, end, size - end).t());
  }
  return out;
}

bool Moments::is_known(const models::Linear& linear) const {
  return std::ranges::any_of(
      parts_, [&](const Part& part) { return std::ranges::find(part.linears, &linear) != part.linears.end(); });
}

std::uint64_t Moments::bytes_with(const models::Linear& linear, const at::Tensor& input, bool has_drift) const {
  return is_known(linear) || is_same_input(last_, input) ? 0 : bytes_with(input.size(-1), has_drift);
}

std::uint64_t Moments::bytes_with(const models::Linear& linear, const KeptInput& input) const {
  return is_known(linear) || input.number == last_number_ ? 0 : bytes_with(input.columns, input.has_change);
}

std::uint64_t Moments::bytes_with(std::int64_t columns, bool has_drift) const {
  const auto square = [](std::int64_t width) { return static_cast<std::uint64_t>(width * width) * sizeof(float); };
  std::uint64_t out = (has_drift ? 2 : 1) * square(columns);
  for (const Part& part : parts_) out += (part.has_drift ? 2 : 1) * square(part.columns);
  return out;
}

// The same in all runs, which see parts in the same order.
void Moments::divide(Part& part) {
  if (share_.count == 1) return;
  const auto columns = static_cast<double>(part.columns);
  if (expert_path(part.linears.front()->path())) {
    part.owner = loads_.give_to_least(columns * columns);
    return;
  }
  const std::int64_t panels = panels_of(part.columns);
  for (std::int64_t panel = 0; part.has_drift && panel < panels; ++panel)
    part.drift_owners.push_back(loads_.give_to_least(columns * kPanel));
  for (std::int64_t panel = 0; panel < panels; ++panel)
    part.owners.push_back(loads_.give_to_least((columns - static_cast<double>(panel * kPanel)) * kPanel));
}

Part& Moments::part_of(const models::Linear& linear, bool is_shared, std::int64_t columns, bool has_drift) {
  const auto has = [&](const Part& part) { return std::ranges::find(part.linears, &linear) != part.linears.end(); };
  const auto found = std::ranges::find_if(parts_, has);
  if (found != parts_.end()) return *found;
  if (is_shared) {
    parts_[current_].linears.push_back(&linear);
    return parts_[current_];
  }
  Part& part = parts_.emplace_back();
  part.linears.push_back(&linear);
  part.columns = columns;
  part.has_drift = has_drift;
  divide(part);
  if (is_summed_here(part)) part.sums = at::zeros({columns, columns}, at::kFloat);
  if (is_summed_here(part) && has_drift) part.drift = at::zeros({columns, columns}, at::kFloat);
  return part;
}

bool Moments::is_summed_here(const Part& part) const { return part.owner < 0 || part.owner == share_.index; }

// Of a sum that is for all, whether this run sums up some of it.
bool Moments::has_panels(const Part& part) const {
  const auto has = [&](const std::vector<int>& owners) {
    return std::ranges::find(owners, share_.index) != owners.end();
  };
  return part.owners.empty() || has(part.owners) || has(part.drift_owners);
}

void Moments::add_rows(Part& part, const InputRows& rows) const {
  add_squares(rows.x, part.sums, part.owners, share_.index);
  if (part.has_drift && rows.change.defined())
    add_drift(rows.change, rows.x, part.drift, part.drift_owners, share_.index);
}

void Moments::add(const models::Linear& linear, const at::Tensor& input, const at::Tensor& original) {
  Part& part = part_of(linear, is_same_input(last_, input), input.size(-1), original.defined());
  current_ = static_cast<std::size_t>(&part - parts_.data());
  last_ = input;
  if (part.linears.front() != &linear) return;  // its input was counted with the first one's
  const InputRows rows = rows_of(input, original, factors_);
  add_rows(part, rows);
  part.tokens += rows.x.size(0);
}

void Moments::add(const models::Linear& linear, const KeptInput& input) {
  Part& part = part_of(linear, input.number == last_number_, input.columns, input.has_change);
  current_ = static_cast<std::size_t>(&part - parts_.data());
  last_number_ = input.number;
  if (part.linears.front() != &linear) return;
  if (is_summed_here(part) && has_panels(part)) add_rows(part, input.load());
  part.tokens += input.tokens;
}

void Moments::for_each_panel(int owner, const std::function<void(at::Tensor)>& work) const {
  for (const Part& part : parts_) {
    for (std::size_t panel = 0; panel < part.owners.size(); ++panel) {
      const std::int64_t begin = static_cast<std::int64_t>(panel) * kPanel;
      const std::int64_t count = std::min(kPanel, part.columns - begin);
      if (part.owners[panel] == owner) work(part.sums.narrow(0, begin, count).narrow(1, begin, part.columns - begin));
      if (part.has_drift && part.drift_owners[panel] == owner) work(part.drift.narrow(0, begin, count));
    }
  }
}

void Moments::give(const std::function<void(std::span<const std::byte>)>& give) const {
  for_each_panel(share_.index, [&](const at::Tensor& panel) {
    const at::Tensor values = panel.contiguous();
    give({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
  });
}

void Moments::take(int owner, const std::function<void(std::span<std::byte>)>& read) {
  for_each_panel(owner, [&](const at::Tensor& panel) {
    at::Tensor values = at::empty(panel.sizes(), at::kFloat);
    read({static_cast<std::byte*>(values.mutable_data_ptr()), values.nbytes()});
    panel.copy_(values);
  });
}

}  // namespace halfbyte::convert::calibrate
