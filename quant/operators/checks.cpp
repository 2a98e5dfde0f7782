#include "quant/operators/checks.h"

#include <sstream>
#include <string>

#include <halfbyte/error.h>

#include "quant/operators/torch_dtype.h"
#include "quant/operators/translate.h"

namespace halfbyte::operators {
namespace {

template <class... Parts>
[[noreturn]] void fail(ErrorCode code, const char* op, const Parts&... parts) {
  std::ostringstream message;
  message << "halfbyte::" << op << ": ";
  (message << ... << parts);
  throw Error(code, message.str());
}

void check_zero_points(const char* op, const Scheme& scheme, const std::optional<at::Tensor>& zero_points,
                       const at::Tensor& scales) {
  const bool is_there = zero_points && zero_points->defined();
  if (is_there != is_asymmetric(scheme)) {
    fail(ErrorCode::kInvalidArgument, op, scheme.name, is_there ? " has no zero points" : " needs zero_points");
  }
  if (!is_there) return;
  check_same_device(op, "zero_points", *zero_points, "scales", scales);
  const at::ScalarType type = scheme.decode == Decode::kOffset ? scales.scalar_type() : at::kInt;
  const std::int64_t rows = scheme.decode == Decode::kOffset ? scales.size(0) : zero_point_words(scales.size(0));
  if (zero_points->scalar_type() == type && zero_points->layout() == at::kStrided && zero_points->dim() == 2 &&
      zero_points->size(0) == rows && zero_points->size(1) == scales.size(1))
    return;
  fail(ErrorCode::kInvalidArgument, op, "zero_points are ", c10::toString(zero_points->scalar_type()), " of shape ",
       zero_points->sizes(), "; expected ", scheme.decode == Decode::kOffset ? "offsets, as scales: " : "",
       c10::toString(type), " [", rows, ", ", scales.size(1), "]");
}

}  // namespace

Dtype check_floating(const char* op, const char* operand, at::ScalarType type) {
  const auto dtype = from_torch(type);
  if (dtype && is_weight_dtype(*dtype)) return *dtype;
  fail(ErrorCode::kContract, op, operand, " is ", dtype ? name(*dtype) : std::string_view(c10::toString(type)),
       "; expected float32, float16 or bfloat16: cast with .to(at::kFloat)");
}

Dtype check_floating(const char* op, const char* operand, const at::Tensor& tensor) {
  if (!tensor.defined()) fail(ErrorCode::kInvalidArgument, op, operand, " is an undefined tensor");
  if (tensor.layout() != at::kStrided) {
    fail(ErrorCode::kContract, op, operand, " has the layout ", tensor.layout(),
         "; expected a strided tensor: call .to_dense()");
  }
  return check_floating(op, operand, tensor.scalar_type());
}

void check_same_device(const char* op, const char* operand, const at::Tensor& tensor, const char* reference_name,
                       const at::Tensor& reference) {
  if (tensor.device() == reference.device()) return;
  fail(ErrorCode::kContract, op, operand, " is on ", tensor.device().str(), " but ", reference_name, " is on ",
       reference.device().str(), "; move one of them with .to()");
}

void check_bias(const char* op, const std::optional<at::Tensor>& bias, std::int64_t out_features,
                const at::Tensor& input) {
  if (!bias || !bias->defined()) return;
  check_floating(op, "bias", *bias);
  check_same_device(op, "bias", *bias, "input", input);
  if (bias->dim() == 1 && bias->size(0) == out_features) return;
  fail(ErrorCode::kInvalidArgument, op, "bias has shape ", bias->sizes(), "; expected [", out_features, "]");
}

void check_input(const char* op, const at::Tensor& input, std::int64_t in_features) {
  check_floating(op, "input", input);
  if (input.dim() >= 1 && input.size(-1) == in_features) return;
  fail(ErrorCode::kInvalidArgument, op, "input has shape ", input.sizes(), "; expected (..., ", in_features, ")");
}

void check_packed_input(const char* op, const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                        std::string_view scheme, std::int64_t group_size) {
  check_floating(op, "input", input);
  if (input.dim() < 1) fail(ErrorCode::kInvalidArgument, op, "input has shape []; expected (..., in_features)");
  const Scheme* known = find_scheme(scheme);
  if (!known || !codes.defined() || !scales.defined() || codes.dim() != 2 || scales.dim() != 2) return;
  // Rows are padded to whole words, so that several lengths fit the codes. What check_packed tells better is left to
  // it.
  const std::int64_t in_features = input.size(-1);
  if (group_size < 1 || in_features == scales.size(1) * group_size) return;
  if (in_features % group_size == 0 && codes.size(1) * 4 == packed_row_bytes(*known, in_features)) return;
  fail(ErrorCode::kInvalidArgument, op, "input has shape ", input.sizes(), "; the weight's rows of ", codes.size(1),
       " words and ", scales.size(1), " groups of ", group_size, " expect (..., ", scales.size(1) * group_size, ")");
}

void check_weight(const char* op, const at::Tensor& weight, const at::Tensor& input) {
  check_floating(op, "input", input);
  check_floating(op, "weight", weight);
  check_same_device(op, "weight", weight, "input", input);
  if (weight.dim() == 2) return;
  fail(ErrorCode::kInvalidArgument, op, "weight has shape ", weight.sizes(), "; expected (out_features, in_features)");
}

quant::Arithmetic check_arithmetic(const char* op, std::string_view arithmetic) {
  for (const auto known : {quant::Arithmetic::kFloat, quant::Arithmetic::kInt8, quant::Arithmetic::kMixed}) {
    if (arithmetic == quant::name(known)) return known;
  }
  fail(ErrorCode::kInvalidArgument, op, "arithmetic \"", arithmetic,
       "\" is unknown; expected \"float\", \"int8\" or \"mixed\"");
}

void check_not_inference(const char* op, const char* operand, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_inference()) return;
  fail(ErrorCode::kContract, op, operand, " (", describe(tensor),
       ") was made under InferenceMode and cannot take part in training; make it outside, or clone() it there");
}

PackedOperand check_packed(const char* op, const at::Tensor& codes, const at::Tensor& scales,
                           const std::optional<at::Tensor>& zero_points, std::string_view scheme,
                           std::int64_t in_features, std::int64_t group_size) {
  const Scheme* known = find_scheme(scheme);
  if (!known) fail(ErrorCode::kUnsupported, op, "scheme \"", scheme, "\" is not known");
  if (!codes.defined() || codes.scalar_type() != at::kInt || codes.dim() != 2) {
    fail(ErrorCode::kContract, op, "codes are ", describe(codes),
         "; codes must be a 2-dimensional int32 tensor of packed words, and must not be cast: load the checkpoint "
         "again");
  }
  check_floating(op, "scales", scales);
  check_same_device(op, "scales", scales, "codes", codes);
  if (in_features < 1 || group_size < 1 || in_features % group_size != 0) {
    fail(ErrorCode::kInvalidArgument, op, "group_size ", group_size, " does not divide in_features ", in_features);
  }
  if (codes.size(1) * 4 != packed_row_bytes(*known, in_features)) {
    fail(ErrorCode::kInvalidArgument, op, "codes have shape ", codes.sizes(), "; in_features ", in_features, " needs ",
         packed_row_bytes(*known, in_features) / 4, " words a row");
  }
  if (scales.dim() != 2 || scales.size(0) != codes.size(0) || scales.size(1) != in_features / group_size) {
    fail(ErrorCode::kInvalidArgument, op, "scales have shape ", scales.sizes(), "; expected [", codes.size(0), ", ",
         in_features / group_size, "]");
  }
  check_zero_points(op, *known, zero_points, scales);
  return {known,
          codes.size(0),
          in_features,
          group_size,
          codes.contiguous(),
          scales.contiguous(),
          is_asymmetric(*known) ? zero_points->contiguous() : at::Tensor()};
}

}  // namespace halfbyte::operators
