// The operators' schemas, their kernels per dispatch key, autocast, and the typed functions that call them.
#include <halfbyte/operators.h>

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "quant/operators/checks.h"
#include "quant/operators/implementations.h"
#include "quant/operators/translate.h"

namespace halfbyte::operators {
namespace {

// What the dispatcher passes is flat; the implementations have the weight's tensors in one.
using OptionalTensors = c10::List<OptionalTensor>;
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
                                            double scale, const OptionalTensor& mask);
using LowBitLinearsSignature = std::vector<at::Tensor>(const at::Tensor& input, at::TensorList codes,
                                                       at::TensorList scales, const OptionalTensors& zero_points,
                                                       const OptionalTensors& biases, std::string_view scheme,
                                                       std::int64_t group_size, const OptionalTensors& offsets,
                                                       const OptionalTensors& row_scales, OptionalType out_dtype,
                                                       std::string_view arithmetic);
using RotaryEmbeddingSignature = Turned(const at::Tensor& query, const at::Tensor& key, const at::Tensor& cosine,
                                        const at::Tensor& sine);
using GatedProductSignature = at::Tensor(const at::Tensor& gate, const at::Tensor& up, std::string_view activation,
                                         OptionalType out_dtype);
using RmsNormSignature = at::Tensor(const at::Tensor& input, const at::Tensor& weight, double epsilon);

constexpr const char* kLowBitLinearSchema =
    "low_bit_linear(Tensor input, Tensor codes, Tensor scales, Tensor? zero_points, Tensor? bias, str scheme, int "
    "group_size, "
    "ScalarType? out_dtype=None, str arithmetic=\"float\", Tensor? offsets=None, Tensor? row_scales=None) -> Tensor";
constexpr const char* kLowBitLinearsSchema =
    "low_bit_linears(Tensor input, Tensor[] codes, Tensor[] scales, Tensor?[] zero_points, Tensor?[] biases, str "
    "scheme, "
    "int group_size, Tensor?[] offsets, Tensor?[] row_scales, ScalarType? out_dtype=None, str arithmetic=\"float\") -> "
    "Tensor[]";
constexpr const char* kRotaryEmbeddingSchema =
    "rotary_embedding(Tensor query, Tensor key, Tensor cosine, Tensor sine) -> (Tensor, Tensor)";
constexpr const char* kGatedProductSchema =
    "gated_product(Tensor gate, Tensor up, str activation, ScalarType? out_dtype=None) -> Tensor";
constexpr const char* kTransposedSchema =
    "low_bit_linear_transposed(Tensor input, Tensor codes, Tensor scales, Tensor? zero_points, str scheme, int "
    "in_features, int group_size, ScalarType? out_dtype=None, Tensor? offsets=None, Tensor? row_scales=None) -> Tensor";
constexpr const char* kDenseLinearSchema =
    "dense_linear(Tensor input, Tensor weight, Tensor? bias, ScalarType? out_dtype=None) -> Tensor";
constexpr const char* kDequantizeSchema =
    "dequantize(Tensor codes, Tensor scales, Tensor? zero_points, str scheme, int in_features, int group_size, "
    "ScalarType dtype, Tensor? offsets=None, Tensor? row_scales=None) -> Tensor";
constexpr const char* kDecodeAttentionSchema =
    "decode_attention(Tensor query, Tensor keys, Tensor values, float scale, Tensor? mask=None) -> Tensor";
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

std::vector<PackedWeight> weights_of(at::TensorList codes, at::TensorList scales, const OptionalTensors& zero_points,
                                     std::string_view scheme, std::int64_t group_size, const OptionalTensors& offsets,
                                     const OptionalTensors& row_scales) {
  const auto check_count = [&](const char* name, std::size_t count) {
    if (count != codes.size())
      refuse("low_bit_linears", std::to_string(count) + " " + name + " for " + std::to_string(codes.size()) + " codes");
  };
  const auto at = [&](const char* name, const OptionalTensors& all, std::size_t index) -> OptionalTensor {
    if (all.empty()) return std::nullopt;
    check_count(name, all.size());
    return all.get(index);
  };
  check_count("scales", scales.size());
  std::vector<PackedWeight> out;
  out.reserve(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i)
    out.push_back({codes[i], scales[i], scheme, group_size, at("zero_points", zero_points, i),
                   at("offsets", offsets, i), at("row_scales", row_scales, i)});
  return out;
}

using LowBitLinears = std::vector<at::Tensor>(const at::Tensor&, std::span<const PackedWeight>,
                                              std::span<const OptionalTensor>, OptionalType, std::string_view);
template <LowBitLinears* kRun>
std::vector<at::Tensor> low_bit_linears_kernel(const at::Tensor& input, at::TensorList codes, at::TensorList scales,
                                               const OptionalTensors& zero_points, const OptionalTensors& biases,
                                               std::string_view scheme, std::int64_t group_size,
                                               const OptionalTensors& offsets, const OptionalTensors& row_scales,
                                               OptionalType out_dtype, std::string_view arithmetic) {
  const auto weights = weights_of(codes, scales, zero_points, scheme, group_size, offsets, row_scales);
  return kRun(input, weights, biases.vec(), out_dtype, arithmetic);
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

std::vector<at::Tensor> call_low_bit_linears(const at::Tensor& input, std::span<const PackedWeight> weights,
                                             std::span<const OptionalTensor> biases, OptionalType out_dtype,
                                             std::string_view arithmetic) {
  static const auto op = handle<LowBitLinearsSignature>("halfbyte::low_bit_linears");
  std::vector<at::Tensor> codes, scales;
  OptionalTensors zero_points, offsets, row_scales, all_biases;
  for (const PackedWeight& weight : weights) {
    codes.push_back(weight.codes);
    scales.push_back(weight.scales);
    zero_points.push_back(weight.zero_points);
    offsets.push_back(weight.offsets);
    row_scales.push_back(weight.row_scales);
    if (weight.scheme != weights[0].scheme || weight.group_size != weights[0].group_size)
      refuse("low_bit_linears", "weights of several schemes or group sizes");
  }
  for (const OptionalTensor& bias : biases) all_biases.push_back(bias);
  const std::string_view scheme = weights.empty() ? std::string_view() : weights[0].scheme;
  return translated(
      [&] {
        return "halfbyte::low_bit_linears(" + describe({{"input", input}}) + ", " + std::to_string(weights.size()) +
               " of " + std::string(scheme) + ")";
      },
      [&] {
        return op.call(input, codes, scales, zero_points, all_biases, scheme,
                       weights.empty() ? 0 : weights[0].group_size, offsets, row_scales, out_dtype, arithmetic);
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
  static std::vector<at::Tensor> low_bit_linears(const at::Tensor& input, std::span<const PackedWeight> weights,
                                                 std::span<const OptionalTensor> biases, OptionalType out_dtype,
                                                 std::string_view arithmetic) {
    c10::impl::ExcludeDispatchKeyGuard guard(key);
    return call_low_bit_linears(cast(input), weights, biases, out_dtype, arithmetic);
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
  library.impl("low_bit_linears", TORCH_FN((low_bit_linears_kernel<Autocast<device, key>::low_bit_linears>)));
  library.impl("dense_linear", TORCH_FN((Autocast<device, key>::dense_linear)));
  library.impl("dequantize", torch::CppFunction::makeFallthrough());                 // its dtype is an argument
  library.impl("low_bit_linear_transposed", torch::CppFunction::makeFallthrough());  // backward has chosen
  library.impl("decode_attention", torch::CppFunction::makeFallthrough());           // products have chosen
  library.impl("rms_norm", torch::CppFunction::makeFallthrough());
  library.impl("rotary_embedding", torch::CppFunction::makeFallthrough());
  library.impl("gated_product", torch::CppFunction::makeFallthrough());
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

// Of one dispatch key.
template <LowBitLinear* kLinear, LowBitLinears* kLinears, Transposed* kTransposed, DenseLinearSignature* kDense,
          Dequantize* kDequantize, DecodeAttentionSignature* kAttention, RmsNormSignature* kNorm,
          RotaryEmbeddingSignature* kRotary, GatedProductSignature* kGated>
void add_kernels(torch::Library& library) {
  library.impl("low_bit_linear", TORCH_FN(low_bit_linear_kernel<kLinear>));
  library.impl("low_bit_linears", TORCH_FN(low_bit_linears_kernel<kLinears>));
  library.impl("low_bit_linear_transposed", TORCH_FN(transposed_kernel<kTransposed>));
  library.impl("dense_linear", TORCH_FN(kDense));
  library.impl("dequantize", TORCH_FN(dequantize_kernel<kDequantize>));
  library.impl("decode_attention", TORCH_FN(kAttention));
  library.impl("rms_norm", TORCH_FN(kNorm));
  library.impl("rotary_embedding", TORCH_FN(kRotary));
  library.impl("gated_product", TORCH_FN(kGated));
}

constexpr const char* kSchemas[] = {kLowBitLinearSchema, kLowBitLinearsSchema,   kTransposedSchema,
                                    kDenseLinearSchema,  kDequantizeSchema,      kDecodeAttentionSchema,
                                    kRmsNormSchema,      kRotaryEmbeddingSchema, kGatedProductSchema};

Libraries make_libraries() {
  Libraries libraries;
  libraries.push_back(
      std::make_unique<torch::Library>(torch::Library::DEF, "halfbyte", std::nullopt, __FILE__, __LINE__));
  for (const char* schema : kSchemas) libraries.back()->def(schema);
  add_kernels<cpu::low_bit_linear, cpu::low_bit_linears, cpu::low_bit_linear_transposed, cpu::dense_linear,
              cpu::dequantize, cpu::decode_attention, cpu::rms_norm, cpu::rotary_embedding, cpu::gated_product>(
      add_library(libraries, c10::DispatchKey::CPU));
  add_kernels<composite::low_bit_linear, composite::low_bit_linears, composite::low_bit_linear_transposed,
              composite::dense_linear, composite::dequantize, composite::decode_attention, composite::rms_norm,
              composite::rotary_embedding, composite::gated_product>(
      add_library(libraries, c10::DispatchKey::CompositeExplicitAutograd));
  add_kernels<autograd::low_bit_linear, autograd::low_bit_linears, autograd::low_bit_linear_transposed,
              autograd::dense_linear, autograd::dequantize, autograd::decode_attention, autograd::rms_norm,
              autograd::rotary_embedding, autograd::gated_product>(add_library(libraries, c10::DispatchKey::Autograd));
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

std::vector<at::Tensor> low_bit_linears(const at::Tensor& input, std::span<const PackedWeight> weights,
                                        std::span<const std::optional<at::Tensor>> biases,
                                        std::optional<at::ScalarType> out_dtype, quant::Arithmetic arithmetic) {
  return call_low_bit_linears(input, weights, biases, out_dtype, quant::name(arithmetic));
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

at::Tensor decode_attention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values, double scale,
                            const std::optional<at::Tensor>& mask) {
  static const auto op = handle<DecodeAttentionSignature>("halfbyte::decode_attention");
  return translated(
      [&] {
        return "halfbyte::decode_attention(" +
               describe({{"query", query}, {"keys", keys}, {"values", values}, {"mask", mask.value_or(at::Tensor())}}) +
               ")";
      },
      [&] { return op.call(query, keys, values, scale, mask); });
}

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  static const auto op = handle<RmsNormSignature>("halfbyte::rms_norm");
  return translated(
      [&] {
        return "halfbyte::rms_norm(" + describe({{"input", input}, {"weight", weight}}) + ")";
      },
      [&] { return op.call(input, weight, epsilon); });
}

Turned rotary_embedding(const at::Tensor& query, const at::Tensor& key, const at::Tensor& cosine,
                        const at::Tensor& sine) {
  static const auto op = handle<RotaryEmbeddingSignature>("halfbyte::rotary_embedding");
  return translated(
      [&] {
        return "halfbyte::rotary_embedding(" +
               describe({{"query", query}, {"key", key}, {"cosine", cosine}, {"sine", sine}}) + ")";
      },
      [&] { return op.call(query, key, cosine, sine); });
}

at::Tensor gated_product(const at::Tensor& gate, const at::Tensor& up, std::string_view activation,
                         std::optional<at::ScalarType> out_dtype) {
  static const auto op = handle<GatedProductSignature>("halfbyte::gated_product");
  return translated(
      [&] {
        return "halfbyte::gated_product(" + describe({{"gate", gate}, {"up", up}}) + ", " + std::string(activation) +
               ")";
      },
      [&] { return op.call(gate, up, activation, out_dtype); });
}

}  // namespace halfbyte::operators
