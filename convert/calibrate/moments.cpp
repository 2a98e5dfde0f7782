#include "convert/calibrate/moments.h"

#include <algorithm>
#include <string_view>

#include <ATen/ops/mm.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros.h>

#include <halfbyte/linear.h>

#include "models/modules/linear.h"
#include "models/modules/pass_watch.h"

namespace halfbyte::convert::calibrate {
namespace {

// Columns that are multiplied at once: what lies wholly below the diagonal is left out.
constexpr std::int64_t kPanel = 512;

// sums += x^T y. A product of bfloat16 is rounded once, after it was summed in float32.
void add_product(const at::Tensor& x, const at::Tensor& y, at::Tensor& sums) {
  const bool is_rounded = x.scalar_type() != sums.scalar_type();
  is_rounded ? sums.add_(at::mm(x.t(), y)) : sums.addmm_(x.t(), y);
}

// The upper half of sums += x^T x.
void add_squares(const at::Tensor& x, at::Tensor& sums) {
  const std::int64_t columns = x.size(1);
  for (std::int64_t begin = 0; begin < columns; begin += kPanel) {
    models::PassWatch::check();
    const std::int64_t count = std::min(kPanel, columns - begin);
    at::Tensor to = sums.narrow(0, begin, count).narrow(1, begin, columns - begin);
    add_product(x.narrow(1, begin, count), x.narrow(1, begin, columns - begin), to);
  }
}

// sums += (original - x)^T x.
void add_drift(const at::Tensor& original, const at::Tensor& input, const at::Tensor& x, at::Tensor& sums) {
  const std::int64_t columns = x.size(1);
  const at::Tensor change = original.to(at::kFloat).sub(input).reshape({-1, columns}).to(x.scalar_type());
  for (std::int64_t begin = 0; begin < columns; begin += kPanel) {
    models::PassWatch::check();
    const std::int64_t count = std::min(kPanel, columns - begin);
    at::Tensor to = sums.narrow(0, begin, count);
    add_product(change.narrow(1, begin, count), x, to);
  }
}

}  // namespace

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

bool Moments::is_shared(const at::Tensor& input) const {
  return last_.defined() && last_.is_same_size(input) && last_.data_ptr() == input.data_ptr();
}

std::uint64_t Moments::bytes_with(const models::Linear& linear, const at::Tensor& input, bool has_drift) const {
  if (is_known(linear) || is_shared(input)) return 0;
  std::uint64_t out = 0;
  for (const Part& part : parts_) out += part.sums.nbytes() + (part.drift.defined() ? part.drift.nbytes() : 0);
  const auto columns = static_cast<std::uint64_t>(input.size(-1));
  return out + (has_drift ? 2 : 1) * columns * columns * sizeof(float);
}

Part& Moments::part_of(const models::Linear& linear, const at::Tensor& input) {
  const auto has = [&](const Part& part) { return std::ranges::find(part.linears, &linear) != part.linears.end(); };
  const auto found = std::ranges::find_if(parts_, has);
  if (found != parts_.end()) return *found;
  if (is_shared(input)) {
    parts_[current_].linears.push_back(&linear);
    return parts_[current_];
  }
  parts_.push_back({{&linear}, at::zeros({input.size(-1), input.size(-1)}, at::kFloat), {}, 0});
  return parts_.back();
}

void Moments::add(const models::Linear& linear, const at::Tensor& input, const at::Tensor& original) {
  Part& part = part_of(linear, input);
  current_ = static_cast<std::size_t>(&part - parts_.data());
  last_ = input;
  if (part.linears.front() != &linear) return;  // its input was counted with the first one's
  const at::Tensor x = input.reshape({-1, input.size(-1)}).to(factors_);
  add_squares(x, part.sums);
  if (original.defined()) {
    if (!part.drift.defined()) part.drift = at::zeros(part.sums.sizes(), at::kFloat);
    add_drift(original, input, x, part.drift);
  }
  part.tokens += x.size(0);
}

}  // namespace halfbyte::convert::calibrate
