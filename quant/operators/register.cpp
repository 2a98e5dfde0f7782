// The operators' schemas, their kernels per dispatch key, autocast, and the typed functions that call them.
#include <halfbyte/operators.h>

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "quant/operators/implementations.h"
#include "quant/operators/translate.h"

namespace halfbyte::operators {
namespace {

// What the dispatcher passes is flat; the implementations have the weight's tensors in one.
using LowBitLinearSignature = at::Tensor(const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                                         const OptionalTensor& zero_points, const OptionalTensor& bias,
                                         std::string_view scheme, std::int64_t group_size, OptionalType out_dtype,
                                         std::string_view arithmetic, const OptionalTensor& offsets,
                                         const OptionalTensor& row_scales);
using TransposedSignature = at::Tensor(const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                                       const OptionalTensor& zero_points, std::string_view scheme,
                                       std::int64_t in_features, std::int64_t group_size, OptionalType out_dtype,
                                       const OptionalTensor& offsets, const OptionalTensor& row_scales);
using DenseLinearSignature = at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&, OptionalType);
using DequantizeSignature = at::Tensor(const at::Tensor& codes, const at::Tensor& scales,
                                       const OptionalTensor& zero_points, std::string_view scheme,
                                       std::int64_t in_features, std::int64_t group_size, at::ScalarType dtype,
                                       const OptionalTensor& offsets, const OptionalTensor& row_scales);
using DecodeAttentionSignature = at::Tensor(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                                            double scale);
using RmsNormSignature = at::Tensor(const at::Tensor& input, const at::Tensor& weight, double epsilon);

constexpr const char* kLowBitLinearSchema =
    "low_bit_linear(Tensor input, Tensor codes, Tensor scales, Tensor? zero_points, Tensor? bias, str scheme, int "
    "group_size, "
    "ScalarType? out_dtype=None, str arithmetic=\"float\", Tensor? offsets=None, Tensor? row_scales=None) -> Tensor";
constexpr const char* kTransposedSchema =
    "low_bit_linear_transposed(Tensor input, Tensor codes, Tensor scales, Tensor? zero_points, str scheme, int "
    "in_features, int group_size, ScalarType? out_dtype=None, Tensor? offsets=None, Tensor? row_scales=None) -> Tensor";
constexpr const char* kDenseLinearSchema =
    "dense_linear(Tensor input, Tensor weight, Tensor? bias, ScalarType? out_dtype=None) -> Tensor";
constexpr const char* kDequantizeSchema =
    "dequantize(Tensor codes, Tensor scales, Tensor? zero_points, str scheme, int in_features, int group_size, "
    "ScalarType dtype, Tensor? offsets=None, Tensor? row_scales=None) -> Tensor";
constexpr const char* kDecodeAttentionSchema =
    "decode_attention(Tensor query, Tensor keys, Tensor values, float scale) -> Tensor";
constexpr const char* kRmsNormSchema = "rms_norm(Tensor input, Tensor weight, float epsilon) -> Tensor";

template <class Signature>
auto handle(const char* name) {
  register_operators();
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

using LowBitLinear = at::Tensor(const at::Tensor&, const PackedWeight&, const OptionalTensor&, OptionalType,
                                std::string_view);
template <LowBitLinear* kRun>
at::Tensor low_bit_linear_kernel(const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                                 const OptionalTensor& zero_points, const OptionalTensor& bias, std::string_view scheme,
                                 std::int64_t group_size, OptionalType out_dtype, std::string_view arithmetic,
                                 const OptionalTensor& offsets, const OptionalTensor& row_scales) {
  return kRun(input, {codes, scales, scheme, group_size, zero_points, offsets, row_scales}, bias, out_dtype,
              arithmetic);
}

using Transposed = at::Tensor(const at::Tensor&, const PackedWeight&, std::int64_t, OptionalType);
template <Transposed* kRun>
at::Tensor transposed_kernel(const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                             const OptionalTensor& zero_points, std::string_view scheme, std::int64_t in_features,
                             std::int64_t group_size, OptionalType out_dtype, const OptionalTensor& offsets,
                             const OptionalTensor& row_scales) {
  return kRun(input, {codes, scales, scheme, group_size, zero_points, offsets, row_scales}, in_features, out_dtype);
}

using Dequantize = at::Tensor(const PackedWeight&, std::int64_t, at::ScalarType);
template <Dequantize* kRun>
at::Tensor dequantize_kernel(const at::Tensor& codes, const at::Tensor& scales, const OptionalTensor& zero_points,
                             std::string_view scheme, std::int64_t in_features, std::int64_t group_size,
                             at::ScalarType dtype, const OptionalTensor& offsets, const OptionalTensor& row_scales) {
  return kRun({codes, scales, scheme, group_size, zero_points, offsets, row_scales}, in_features, dtype);
}

at::Tensor call_low_bit_linear(const at::Tensor& input, const PackedWeight& w, const OptionalTensor& bias,
                               OptionalType out_dtype, std::string_view arithmetic) {
  static const auto op = handle<LowBitLinearSignature>("halfbyte::low_bit_linear");
  return translated(
      [&] {
        return "halfbyte::low_bit_linear(" +
               describe({{"input", input},
                         {"codes", w.codes},
                         {"scales", w.scales},
                         {"bias", bias.value_or(at::Tensor())}}) +
               ", " + std::string(w.scheme) + ")";
      },
      [&] {
        return op.call(input, w.codes, w.scales, w.zero_points, bias, w.scheme, w.group_size, out_dtype, arithmetic,
                       w.offsets, w.row_scales);
      });
}

// Under autocast the activation takes autocast's dtype; codes, scales, bias and dense weights stay as they are, because
// the kernels widen them in registers.
template <c10::DeviceType device, c10::DispatchKey key>
struct Autocast {
  static at::Tensor cast(const at::Tensor& input) {
    return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), input, device);
  }
  static at::Tensor low_bit_linear(const at::Tensor& input, const PackedWeight& weight, const OptionalTensor& bias,
                                   OptionalType out_dtype, std::string_view arithmetic) {
    c10::impl::ExcludeDispatchKeyGuard guard(key);
    return call_low_bit_linear(cast(input), weight, bias, out_dtype, arithmetic);
  }
  static at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight, const OptionalTensor& bias,
                                 OptionalType out_dtype) {
    c10::impl::ExcludeDispatchKeyGuard guard(key);
    return operators::dense_linear(cast(input), weight, bias, out_dtype);
  }
};

using Libraries = std::vector<std::unique_ptr<torch::Library>>;

torch::Library& add_library(Libraries& libraries, c10::DispatchKey key) {
  libraries.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, "halfbyte", key, __FILE__, __LINE__));
  return *libraries.back();
}

template <c10::DeviceType device, c10::DispatchKey key>
void add_autocast(Libraries& libraries) {
  torch::Library& library = add_library(libraries, key);
  library.impl("low_bit_linear", TORCH_FN((low_bit_linear_kernel<Autocast<device, key>::low_bit_linear>)));
  library.impl("dense_linear", TORCH_FN((Autocast<device, key>::dense_linear)));
  library.impl("dequantize", torch::CppFunction::makeFallthrough());                 // its dtype is an argument
  library.impl("low_bit_linear_transposed", torch::CppFunction::makeFallthrough());  // backward has chosen
  library.impl("decode_attention", torch::CppFunction::makeFallthrough());           // products have chosen
  library.impl("rms_norm", torch::CppFunction::makeFallthrough());
}

// Every device that LibTorch's autocast knows.
void add_autocasts(Libraries& libraries) {
  add_autocast<c10::kCPU, c10::DispatchKey::AutocastCPU>(libraries);
  add_autocast<c10::kCUDA, c10::DispatchKey::AutocastCUDA>(libraries);
  add_autocast<c10::kXPU, c10::DispatchKey::AutocastXPU>(libraries);
  add_autocast<c10::kMPS, c10::DispatchKey::AutocastMPS>(libraries);
  add_autocast<c10::kHPU, c10::DispatchKey::AutocastHPU>(libraries);
  add_autocast<c10::kIPU, c10::DispatchKey::AutocastIPU>(libraries);
  add_autocast<c10::kXLA, c10::DispatchKey::AutocastXLA>(libraries);
  add_autocast<c10::kMTIA, c10::DispatchKey::AutocastMTIA>(libraries);
  add_autocast<c10::kMAIA, c10::DispatchKey::AutocastMAIA>(libraries);
  add_autocast<c10::kPrivateUse1, c10::DispatchKey::AutocastPrivateUse1>(libraries);
}

Libraries make_libraries() {
  Libraries libraries;
  libraries.push_back(
      std::make_unique<torch::Library>(torch::Library::DEF, "halfbyte", std::nullopt, __FILE__, __LINE__));
  libraries.back()->def(kLowBitLinearSchema);
  libraries.back()->def(kTransposedSchema);
  libraries.back()->def(kDenseLinearSchema);
  libraries.back()->def(kDequantizeSchema);
  libraries.back()->def(kDecodeAttentionSchema);
  libraries.back()->def(kRmsNormSchema);

  torch::Library& cpu_library = add_library(libraries, c10::DispatchKey::CPU);
  cpu_library.impl("low_bit_linear", TORCH_FN((low_bit_linear_kernel<cpu::low_bit_linear>)));
  cpu_library.impl("low_bit_linear_transposed", TORCH_FN((transposed_kernel<cpu::low_bit_linear_transposed>)));
  cpu_library.impl("dense_linear", TORCH_FN(cpu::dense_linear));
  cpu_library.impl("dequantize", TORCH_FN((dequantize_kernel<cpu::dequantize>)));
  cpu_library.impl("decode_attention", TORCH_FN(cpu::decode_attention));
  cpu_library.impl("rms_norm", TORCH_FN(cpu::rms_norm));

  torch::Library& composite_library = add_library(libraries, c10::DispatchKey::CompositeExplicitAutograd);
  composite_library.impl("low_bit_linear", TORCH_FN((low_bit_linear_kernel<composite::low_bit_linear>)));
  composite_library.impl("low_bit_linear_transposed",
                         TORCH_FN((transposed_kernel<composite::low_bit_linear_transposed>)));
  composite_library.impl("dense_linear", TORCH_FN(composite::dense_linear));
  composite_library.impl("dequantize", TORCH_FN((dequantize_kernel<composite::dequantize>)));
  composite_library.impl("decode_attention", TORCH_FN(composite::decode_attention));
  composite_library.impl("rms_norm", TORCH_FN(composite::rms_norm));

  torch::Library& autograd_library = add_library(libraries, c10::DispatchKey::Autograd);
  autograd_library.impl("low_bit_linear", TORCH_FN((low_bit_linear_kernel<autograd::low_bit_linear>)));
  autograd_library.impl("low_bit_linear_transposed",
                        TORCH_FN((transposed_kernel<autograd::low_bit_linear_transposed>)));
  autograd_library.impl("dense_linear", TORCH_FN(autograd::dense_linear));
  autograd_library.impl("dequantize", TORCH_FN((dequantize_kernel<autograd::dequantize>)));
  autograd_library.impl("decode_attention", TORCH_FN(autograd::decode_attention));
  autograd_library.impl("rms_norm", TORCH_FN(autograd::rms_norm));
  add_autocasts(libraries);
  return libraries;
}

}  // namespace

void register_operators() {
  // Never destroyed: LibTorch's dispatcher may be gone by the time static destructors run.
  static const Libraries* libraries = new Libraries(make_libraries());
  static_cast<void>(libraries);
}

at::Tensor low_bit_linear(const at::Tensor& input, const PackedWeight& weight, const std::optional<at::Tensor>& bias,
                          std::optional<at::ScalarType> out_dtype, quant::Arithmetic arithmetic) {
  return call_low_bit_linear(input, weight, bias, out_dtype, quant::name(arithmetic));
}

at::Tensor low_bit_linear_transposed(const at::Tensor& input, const PackedWeight& w, std::int64_t in_features,
                                     std::optional<at::ScalarType> out_dtype) {
  static const auto op = handle<TransposedSignature>("halfbyte::low_bit_linear_transposed");
  return translated(
      [&] {
        return "halfbyte::low_bit_linear_transposed(" +
               describe({{"input", input}, {"codes", w.codes}, {"scales", w.scales}}) + ", " + std::string(w.scheme) +
               ")";
      },
      [&] {
        return op.call(input, w.codes, w.scales, w.zero_points, w.scheme, in_features, w.group_size, out_dtype,
                       w.offsets, w.row_scales);
      });
}

at::Tensor dense_linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                        std::optional<at::ScalarType> out_dtype) {
  static const auto op = handle<DenseLinearSignature>("halfbyte::dense_linear");
  return translated(
      [&] {
        return "halfbyte::dense_linear(" +
               describe({{"input", input}, {"weight", weight}, {"bias", bias.value_or(at::Tensor())}}) + ")";
      },
      [&] { return op.call(input, weight, bias, out_dtype); });
}

at::Tensor dequantize(const PackedWeight& w, std::int64_t in_features, at::ScalarType dtype) {
  static const auto op = handle<DequantizeSignature>("halfbyte::dequantize");
  return translated(
      [&] {
        return "halfbyte::dequantize(" + describe({{"codes", w.codes}, {"scales", w.scales}}) + ", " +
               std::string(w.scheme) + ")";
      },
      [&] {
        return op.call(w.codes, w.scales, w.zero_points, w.scheme, in_features, w.group_size, dtype, w.offsets,
                       w.row_scales);
      });
}

at::Tensor decode_attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values, double scale) {
  static const auto op = handle<DecodeAttentionSignature>("halfbyte::decode_attention");
  return translated(
      [&] {
        return "halfbyte::decode_attention(" + describe({{"query", query}, {"keys", keys}, {"values", values}}) + ")";
      },
      [&] { return op.call(query, keys, values, scale); });
}

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  static const auto op = handle<RmsNormSignature>("halfbyte::rms_norm");
  return translated(
      [&] {
        return "halfbyte::rms_norm(" + describe({{"input", input}, {"weight", weight}}) + ")";
      },
      [&] { return op.call(input, weight, epsilon); });
}

}  // namespace halfbyte::operators
