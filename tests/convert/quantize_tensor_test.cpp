#include <halfbyte/quantize_tensor.h>

#include <limits>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include <halfbyte/convert.h>
#include <halfbyte/load_state.h>

#include "convert/group_sizes.h"
#include "quant/operators/torch_dtype.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::quantize_tensor;
using convert::QuantizeTensorOptions;

namespace {

at::Tensor random(std::int64_t rows, std::int64_t columns, at::ScalarType type = at::kFloat) {
  return at::randn({rows, columns}, at::detail::createCPUGenerator(1), at::kFloat).to(type);
}

TestTensor stored(const std::string& name, const at::Tensor& value) {
  return {name, std::string(info(*from_torch(value.scalar_type())).safetensors), value.sizes().vec(),
          std::string(static_cast<const char*>(value.const_data_ptr()), value.nbytes())};
}

void check_same(const std::optional<at::Tensor>& found, const std::optional<at::Tensor>& wanted) {
  REQUIRE(found.has_value() == wanted.has_value());
  if (!found) return;
  CHECK(found->scalar_type() == wanted->scalar_type());
  CHECK(found->equal(*wanted));
}

void check_same(const LowBitTensor& found, const LowBitTensor& wanted) {
  CHECK(found.scheme == wanted.scheme);
  CHECK(found.in_features == wanted.in_features);
  CHECK(found.group_size == wanted.group_size);
  CHECK(found.dtype == wanted.dtype);
  check_same(found.codes, wanted.codes);
  check_same(found.scales, wanted.scales);
  check_same(found.column_order, wanted.column_order);
  for (const LowBitTensor::Extra& extra : LowBitTensor::extras()) {
    INFO(extra.title);
    check_same(found.*extra.tensor, wanted.*extra.tensor);
  }
}

// As quantize() writes it into a checkpoint.
LowBitTensor from_file(const at::Tensor& weight, const QuantizeTensorOptions& options) {
  const Scratch scratch;
  write_checkpoint(scratch / "src", {stored("a.weight", weight)}, nullptr);
  convert::quantize(scratch / "src", scratch / "dst",
                    {.scheme = std::string(options.scheme),
                     .group_size = options.group_size,
                     .search = options.search,
                     .halfbyte_only = true});
  return load_state(scratch / "dst").at("a.weight").low_bit();
}

// All that a scheme has, and none.
std::vector<std::optional<std::int64_t>> group_sizes_asked(const Scheme& scheme) {
  std::vector<std::optional<std::int64_t>> out{std::nullopt};
  for (const std::int64_t size : group_sizes(scheme)) out.emplace_back(size);
  if (convert::has_group_size(scheme, kPerChannel)) out.emplace_back(kPerChannel);
  return out;
}

}  // namespace

TEST_CASE("quantize_tensor: the parts that quantize() writes, in every scheme, bit for bit", "[quantize_tensor]") {
  for (const Scheme& scheme : schemes()) {
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      const at::Tensor weight = random(13, 384, type);  // rows that fill no word of zero points
      for (const auto& group_size : group_sizes_asked(scheme)) {
        INFO(scheme.name << ", " << c10::toString(type) << ", groups of " << group_size.value_or(-1));
        const QuantizeTensorOptions options{.scheme = scheme.name, .group_size = group_size};
        check_same(quantize_tensor(weight, options), from_file(weight, options));
      }
    }
    for (const quant::SearchName& row : quant::searches()) {
      INFO(scheme.name << ", " << row.name);
      const QuantizeTensorOptions options{.scheme = scheme.name, .search = row.search};
      check_same(quantize_tensor(random(5, 256), options), from_file(random(5, 256), options));
    }
    INFO(scheme.name << ", more than one block");
    const at::Tensor large = random(520, 1024);
    check_same(quantize_tensor(large, {.scheme = scheme.name}), from_file(large, {.scheme = scheme.name}));
  }
}

TEST_CASE("quantize_tensor: the values are close to the weight's, in its dtype", "[quantize_tensor]") {
  for (const Scheme& scheme : schemes()) {
    INFO(scheme.name);
    const at::Tensor weight = random(16, 256);
    const LowBitTensor packed = quantize_tensor(weight, {.scheme = scheme.name});
    CHECK(packed.out_features() == 16);
    const at::Tensor values = packed.dequantize();
    CHECK(values.scalar_type() == at::kFloat);
    const double error = ((values - weight).norm() / weight.norm()).item<double>();
    CHECK(error < (scheme.bits == 8 ? 0.006 : 0.12));  // measured .0056, and from .061 to .1124
  }
  CHECK(quantize_tensor(random(4, 128)).description() == "sym_int4 g64");
  CHECK(quantize_tensor(random(4, 128), {.group_size = kPerChannel}).description() == "sym_int4 per channel");
}

TEST_CASE("quantize_tensor: a group size that does not divide gives way to the largest that does",
          "[quantize_tensor]") {
  for (const Scheme& scheme : schemes()) {
    for (const std::int64_t columns : {16, 32, 48, 64, 96, 192, 256}) {
      for (const auto& group_size : group_sizes_asked(scheme)) {
        INFO(scheme.name << ", " << columns << " columns, groups of " << group_size.value_or(-1));
        const QuantizeTensorOptions options{.scheme = scheme.name, .group_size = group_size};
        const auto wanted = convert::fitting_group_size(scheme, group_size.value_or(scheme.default_group), columns);
        if (wanted) {
          const at::Tensor weight = random(3, columns);
          const LowBitTensor packed = quantize_tensor(weight, options);
          CHECK(packed.group_size == *wanted);
          check_same(packed, from_file(weight, options));
        } else {
          check_error(ErrorCode::kUnsupported,
                      {std::string(scheme.name), "divides the " + std::to_string(columns) + " columns"},
                      [&] { quantize_tensor(random(3, columns), options); });
        }
      }
    }
    check_error(ErrorCode::kUnsupported, {"no group size of " + std::string(scheme.name), "the 7 columns"},
                [&] { quantize_tensor(random(3, 7), {.scheme = scheme.name}); });
  }
}

TEST_CASE("quantize_tensor: schemes and group sizes that there are not are refused", "[quantize_tensor]") {
  const at::Tensor weight = random(3, 64);
  check_error(ErrorCode::kInvalidArgument, {"no scheme 'int3'", "sym_int4", "hb4_fine"},
              [&] { quantize_tensor(weight, {.scheme = "int3"}); });
  for (const Scheme& scheme : schemes()) {
    for (const std::int64_t group_size : {-1, 1, 48, 256}) {
      check_error(ErrorCode::kInvalidArgument,
                  {std::string(scheme.name), "groups of " + std::to_string(group_size), "known are"},
                  [&] { quantize_tensor(weight, {.scheme = scheme.name, .group_size = group_size}); });
    }
    if (convert::has_group_size(scheme, kPerChannel)) continue;
    check_error(ErrorCode::kInvalidArgument, {std::string(scheme.name), "one scale a row"},
                [&] { quantize_tensor(weight, {.scheme = scheme.name, .group_size = kPerChannel}); });
  }
}

TEST_CASE("quantize_tensor: what is not finite is named by row and column", "[quantize_tensor]") {
  for (const Scheme& scheme : schemes()) {
    for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const auto& [value, text] : {std::pair(std::numeric_limits<double>::quiet_NaN(), "nan"),
                                        std::pair(std::numeric_limits<double>::infinity(), "inf")}) {
        INFO(scheme.name << ", " << c10::toString(type) << ", " << text);
        at::Tensor weight = random(19, 128, type);
        weight.select(0, 17).select(0, 101).fill_(value);
        check_error(ErrorCode::kCorrupt, {text, "row 17, column 101", "finite"},
                    [&] { quantize_tensor(weight, {.scheme = scheme.name}); });
      }
    }
  }
}

TEST_CASE("quantize_tensor: only dense matrices of floats on the CPU are quantised", "[quantize_tensor]") {
  const auto refused = [](const std::string& part, const at::Tensor& weight) {
    check_error(ErrorCode::kInvalidArgument, {"the weight is " + part, "a matrix of float32, float16 or bfloat16"},
                [&] { quantize_tensor(weight); });
  };
  refused("float64 [2, 64]", random(2, 64, at::kDouble));
  refused("int64 [2, 64]", at::ones({2, 64}, at::kLong));
  refused("int8 [2, 64]", at::ones({2, 64}, at::kChar));
  refused("bool [2, 64]", at::ones({2, 64}, at::kBool));
  refused("", at::ones({2, 64}, at::kComplexFloat));
  refused("float8_e4m3fn [2, 64]", random(2, 64).to(at::kFloat8_e4m3fn));
  refused("float32 [64]", random(1, 64)[0]);
  refused("float32 []", random(1, 1)[0][0]);
  refused("float32 [2, 2, 64]", random(4, 64).view({2, 2, 64}));
  refused("float32 [0, 64]", at::empty({0, 64}));
  refused("float32 [4, 0]", at::empty({4, 0}));
  refused("float32 [2, 64] on meta", at::empty({2, 64}, at::TensorOptions(at::kMeta)));
  refused("float32 [2, 64]", random(2, 64).to_sparse());
  refused("undefined", at::Tensor());
}

TEST_CASE("quantize_tensor: strides do not matter, and the weight stays as it is", "[quantize_tensor]") {
  const at::Tensor wide = random(128, 512);
  const at::Tensor row = random(1, 128);
  const at::Tensor views[] = {wide.t(),
                              wide.slice(1, 3, 131),
                              wide.slice(0, 1, 100, 7),
                              wide.slice(1, 0, 512, 4),
                              wide.as_strided({16, 64}, {64, 2}),
                              row.expand({8, 128}),
                              wide.clone().requires_grad_()};
  for (const Scheme& scheme : schemes()) {
    for (const at::Tensor& view : views) {
      INFO(scheme.name << ", " << view.sizes() << " in strides of " << view.strides());
      const at::Tensor before = view.detach().clone(at::MemoryFormat::Contiguous);
      const LowBitTensor packed = quantize_tensor(view, {.scheme = scheme.name});
      check_same(packed, quantize_tensor(before, {.scheme = scheme.name}));
      CHECK(view.detach().equal(before));
      CHECK_FALSE(packed.scales.requires_grad());
    }
  }
}
