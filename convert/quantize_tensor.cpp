#include <halfbyte/quantize_tensor.h>

#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <halfbyte/error.h>

#include "convert/group_sizes.h"
#include "quant/operators/torch_dtype.h"
#include "quant/operators/translate.h"

namespace halfbyte::convert {
namespace {

const Scheme& scheme_of(std::string_view name) {
  if (const Scheme* scheme = find_scheme(name)) return *scheme;
  std::string known;
  for (const Scheme& scheme : schemes()) known += (known.empty() ? "" : ", ") + std::string(scheme.name);
  throw Error(ErrorCode::kInvalidArgument, "there is no scheme '" + std::string(name) + "'; there are " + known);
}

std::int64_t group_size_of(const Scheme& scheme, const QuantizeTensorOptions& options, std::int64_t columns) {
  if (options.group_size) check_group_size(*options.group_size, scheme);
  const auto fits = fitting_group_size(scheme, options.group_size.value_or(scheme.default_group), columns);
  if (fits) return *fits;
  throw Error(ErrorCode::kUnsupported, "no group size of " + std::string(scheme.name) + " divides the " +
                                           std::to_string(columns) + " columns of the weight");
}

Dtype dtype_of(const at::Tensor& weight) {
  const auto dtype = weight.defined() ? from_torch(weight.scalar_type()) : std::nullopt;
  const bool is_dense = dtype && weight.layout() == at::kStrided && weight.is_cpu();
  if (is_dense && is_weight_dtype(*dtype) && weight.dim() == 2 && weight.numel() > 0) return *dtype;
  throw Error(ErrorCode::kInvalidArgument,
              "the weight is " + describe(weight) +
                  "; what is quantised is a matrix of float32, float16 or bfloat16 on the CPU");
}

std::byte* bytes_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.mutable_data_ptr()); }

// Empty tensors for the results.
LowBitTensor room_for(const Scheme& scheme, Dtype dtype, std::int64_t rows, std::int64_t columns, std::int64_t group) {
  LowBitTensor out;
  out.scheme = &scheme;
  out.in_features = columns;
  out.group_size = group;
  out.dtype = weight_scalar_type(dtype);
  out.codes = at::empty({rows, packed_row_words(scheme.bits, columns)}, at::kInt);
  const at::ScalarType scales = has_row_scales(scheme) ? at::kChar : weight_scalar_type(scale_dtype_for(scheme, dtype));
  out.scales = at::empty({rows, columns / group}, scales);
  if (scheme.decode == Decode::kZeroPoint)
    out.zero_points = at::empty({zero_point_words(rows), columns / group}, at::kInt);
  if (scheme.decode == Decode::kOffset) out.offsets = at::empty_like(out.scales);
  if (has_row_scales(scheme)) out.row_scales = at::empty({rows}, at::kBFloat16);
  return out;
}

}  // namespace

LowBitTensor quantize_tensor(const at::Tensor& weight, const QuantizeTensorOptions& options) {
  const Dtype dtype = dtype_of(weight);
  const Scheme& scheme = scheme_of(options.scheme);
  const at::Tensor plain = weight.detach().contiguous();
  const std::int64_t rows = plain.size(0), columns = plain.size(1);
  const std::int64_t group = group_size_of(scheme, options, columns), groups = columns / group;
  LowBitTensor out = room_for(scheme, dtype, rows, columns, group);
  quant::GroupOptions how{.scheme = &scheme, .group_size = group};
  if (options.search) how.search = *options.search;
  if (!has_row_scales(scheme)) how.scale_dtype = scale_dtype_for(scheme, dtype);
  std::vector<std::uint8_t> zero_points(out.zero_points ? static_cast<std::size_t>(rows * groups) : 0);
  const quant::PackedRows packed{.codes = bytes_of(out.codes),
                                 .scales = bytes_of(out.scales),
                                 .zero_points = zero_points.data(),
                                 .offsets = out.offsets ? bytes_of(*out.offsets) : nullptr,
                                 .row_scales = out.row_scales ? bytes_of(*out.row_scales) : nullptr};
  const quant::FloatRows source{static_cast<const std::byte*>(plain.const_data_ptr()), dtype, rows, columns};
  quant::ErrorStats error;
  if (const auto bad = quant::quantize_rows(source, how, packed, error))
    throw Error(ErrorCode::kCorrupt, "the weight has " + std::to_string(bad->value) + " in row " +
                                         std::to_string(bad->row) + ", column " + std::to_string(bad->column) +
                                         "; weights must be finite");
  if (out.zero_points)
    quant::pack_zero_points(zero_points.data(), rows, groups,
                            reinterpret_cast<std::uint32_t*>(bytes_of(*out.zero_points)));
  return out;
}

}  // namespace halfbyte::convert
