#include "convert/calibrate/moments.h"

#include <algorithm>

#include <ATen/ops/triu.h>
#include <ATen/ops/zeros.h>

#include "models/modules/linear.h"
#include "models/modules/pass_watch.h"

namespace halfbyte::convert::calibrate {
namespace {

// Columns that are multiplied at once: what lies wholly below the diagonal is left out.
constexpr std::int64_t kPanel = 512;

// The upper half of sums += x^T x.
void add_products(const at::Tensor& x, at::Tensor& sums) {
  const std::int64_t columns = x.size(1);
  for (std::int64_t begin = 0; begin < columns; begin += kPanel) {
    models::PassWatch::check();
    const std::int64_t count = std::min(kPanel, columns - begin);
    sums.narrow(0, begin, count)
        .narrow(1, begin, columns - begin)
        .addmm_(x.narrow(1, begin, count).t(), x.narrow(1, begin, columns - begin));
  }
}

}  // namespace

at::Tensor Part::moments() const {
  const at::Tensor upper = sums.triu();
  return upper + upper.triu(1).t();
}

Part& Moments::part_of(const models::Linear& linear, const at::Tensor& input) {
  const auto has = [&](const Part& part) { return std::ranges::find(part.linears, &linear) != part.linears.end(); };
  const auto found = std::ranges::find_if(parts_, has);
  if (found != parts_.end()) return *found;
  const bool is_shared = last_.defined() && last_.is_same_size(input) && last_.data_ptr() == input.data_ptr();
  if (is_shared) {
    parts_[current_].linears.push_back(&linear);
    return parts_[current_];
  }
  parts_.push_back({{&linear}, at::zeros({input.size(-1), input.size(-1)}, at::kFloat), 0});
  return parts_.back();
}

void Moments::add(const models::Linear& linear, const at::Tensor& input) {
  Part& part = part_of(linear, input);
  current_ = static_cast<std::size_t>(&part - parts_.data());
  last_ = input;
  if (part.linears.front() != &linear) return;  // its input was counted with the first one's
  const at::Tensor x = input.reshape({-1, input.size(-1)}).to(at::kFloat);
  add_products(x, part.sums);
  part.tokens += x.size(0);
}

}  // namespace halfbyte::convert::calibrate
