#include "models/modules/heads.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/stack.h>

namespace halfbyte::models {

at::Tensor gathered(const Pass& pass, const KeyRange& range,
                    const std::function<at::Tensor(Session& session, std::int64_t count)>& of_row) {
  std::vector<at::Tensor> rows;
  for (std::int64_t row = 0; row < pass.rows; ++row) {
    Session& session = *pass.sessions[static_cast<std::size_t>(row)];
    const std::int64_t count = session.length() + pass.tokens - range.begin;
    const at::Tensor own = of_row(session, count);
    rows.push_back(count == range.count ? own : at::constant_pad_nd(own, {0, 0, 0, range.count - count}));
  }
  return rows.size() == 1 ? rows[0].unsqueeze(0) : at::stack(rows);
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
