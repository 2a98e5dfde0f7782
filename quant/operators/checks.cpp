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

std::optional<at::Tensor> check_extra(const char* op, const PackedWeight::Extra& extra, const PackedOperand& packed,
                                      const std::optional<at::Tensor>& given) {
  const PartRule* rule = find_part(*packed.scheme, extra.part);
  const bool is_there = given && given->defined();
  if (is_there != (rule != nullptr))
    fail(ErrorCode::kInvalidArgument, op, packed.scheme->name, is_there ? " has no " : " needs ", extra.name);
  if (!is_there) return std::nullopt;
  check_same_device(op, extra.name, *given, "scales", packed.weight.scales);
  const at::ScalarType type = type_of(*rule, packed);
  const std::vector<std::int64_t> shape = shape_of(*rule, packed);
  if (given->scalar_type() == type && given->layout() == at::kStrided && given->sizes() == shape)
    return given->contiguous();
  fail(ErrorCode::kInvalidArgument, op, extra.name, " are ", c10::toString(given->scalar_type()), " of shape ",
       given->sizes(), "; expected ", c10::toString(type), " ", at::IntArrayRef(shape));
}

void check_scales(const char* op, const Scheme& scheme, const at::Tensor& scales) {
  if (!has_row_scales(scheme)) return static_cast<void>(check_floating(op, "scales", scales));
  if (scales.defined() && scales.layout() == at::kStrided && scales.scalar_type() == at::kChar) return;
  fail(ErrorCode::kContract, op, "scales are ", describe({{"scales", scales}}), "; those of ", scheme.name,
       " are int8, and must not be cast: load the checkpoint again");
}

constexpr PackedWeight::Extra kExtras[] = {{Part::kZeroPoint, &PackedWeight::zero_points, "zero_points"},
                                           {Part::kOffset, &PackedWeight::offsets, "offsets"},
                                           {Part::kRowScale, &PackedWeight::row_scales, "row_scales"}};

}  // namespace

void refuse(const char* op, const std::string& what) { fail(ErrorCode::kInvalidArgument, op, what); }

std::span<const PackedWeight::Extra> PackedWeight::extras() noexcept { return kExtras; }

std::vector<std::int64_t> shape_of(const PartRule& rule, const PackedOperand& packed) {
  return shape_of(rule.shape, {packed.scheme->bits, packed.out_features, packed.in_features, packed.weight.group_size});
}

at::ScalarType type_of(const PartRule& rule, const PackedOperand& packed) {
  return rule.dtype ? *to_torch(*rule.dtype) : packed.weight.scales.scalar_type();
}

Dtype check_floating(const char* op, const char* operand, at::ScalarType type) {
  const auto dtype = from_torch(type);
  if (dtype && is_weight_dtype(*dtype)) return *dtype;
  fail(ErrorCode::kContract, op, operand, " is ", dtype ? name(*dtype) : std::string_view(c10::toString(type)),
       "; expected float32, float16 or bfloat16: cast with .to(at::kFloat), in Python .to(torch.float32)");
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

void check_packed_input(const char* op, const at::Tensor& input, const PackedWeight& weight) {
  const at::Tensor &codes = weight.codes, &scales = weight.scales;
  const std::int64_t group_size = weight.group_size;
  check_floating(op, "input", input);
  if (input.dim() < 1) fail(ErrorCode::kInvalidArgument, op, "input has shape []; expected (..., in_features)");
  const Scheme* known = find_scheme(weight.scheme);
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

PackedOperand check_packed(const char* op, const PackedWeight& weight, std::int64_t in_features) {
  const at::Tensor &codes = weight.codes, &scales = weight.scales;
  const std::int64_t group_size = weight.group_size;
  const Scheme* known = find_scheme(weight.scheme);
  if (!known) fail(ErrorCode::kUnsupported, op, "scheme \"", weight.scheme, "\" is not known");
  if (!codes.defined() || codes.scalar_type() != at::kInt || codes.dim() != 2) {
    fail(ErrorCode::kContract, op, "codes are ", describe(codes),
         "; codes must be a 2-dimensional int32 tensor of packed words, and must not be cast: load the checkpoint "
         "again");
  }
  check_scales(op, *known, scales);
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
  PackedOperand out{known, codes.size(0), in_features, weight};
  out.weight.codes = codes.contiguous();
  out.weight.scales = scales.contiguous();
  for (const PackedWeight::Extra& extra : PackedWeight::extras())
    out.weight.*extra.tensor = check_extra(op, extra, out, weight.*extra.tensor);
  return out;
}

}  // namespace halfbyte::operators
