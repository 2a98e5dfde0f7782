#include "models/modules/heads.h"

namespace halfbyte::models {

void store(const at::Tensor& cache, const at::Tensor& fresh, const Pass& pass) {
  const at::Tensor source = fresh.transpose(1, 2);
  const at::Tensor rows = cache.narrow(0, pass.first_row, pass.rows);
  if (pass.is_uniform) {
    rows.narrow(2, pass.past.front(), pass.tokens).copy_(source);
    return;
  }
  for (std::int64_t row = 0; row < pass.rows; ++row) {
    rows.select(0, row).narrow(1, pass.past[static_cast<std::size_t>(row)], pass.tokens).copy_(source.select(0, row));
  }
}

// Under a policy that fixes the stream's dtype what is turned has that dtype already, and so has the table.
at::Tensor turn(const at::Tensor& x, const Pass& pass, std::size_t rope, const Compute& compute, bool is_interleaved) {
  if (rope == kNoRope) return x;
  const RotaryTable& table = pass.rotaries.at(rope);
  if (compute.stream) return rotate(x, table.cosine, table.sine, is_interleaved);
  return rotate(x, table.cosine.to(x.scalar_type()), table.sine.to(x.scalar_type()), is_interleaved);
}

at::ScalarType product_dtype(at::Device device, at::ScalarType operand) {
  return device.is_cpu() && operand == at::kHalf ? at::kFloat : operand;
}

}  // namespace halfbyte::models
