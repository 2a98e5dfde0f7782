#include "convert/calibrate/correction.h"

#include <ATen/ops/mm.h>

namespace halfbyte::convert::calibrate {
namespace {

// On small-llama, sym_int4: .5 takes 19 % off the loss where the text is of the kind that is judged, 14 and 17 % with
// two of other kinds; 1 takes 23, 8 and 10 %.
constexpr double kShare = 0.6;

}  // namespace

at::Tensor wanted_change(const at::Tensor& weights, const at::Tensor& drift) { return weights.mm(drift); }

// H^-1 = U^T U, columns and rows in the feedback's order.
at::Tensor corrected(const at::Tensor& weights, const at::Tensor& change, const Feedback& feedback) {
  const at::Tensor solved = change.index_select(1, feedback.order).mm(feedback.factor.t()).mm(feedback.factor);
  at::Tensor out = weights.clone();
  out.index_add_(1, feedback.order, solved, kShare);
  return out;
}

}  // namespace halfbyte::convert::calibrate
