// The LibTorch operators: every backend answers, gradients are right, autocast casts the activation and nothing else,
// and operands that do not fit are refused in our words.
#include "tests/catch.h"

#include <ATen/autocast_mode.h>

#include <halfbyte/error.h>
#include <halfbyte/operators.h>

#include "quant/operators/implementations.h"
#include "tests/quant/operators/packed.h"

namespace halfbyte::operators {
namespace {

TEST_CASE("the composite equals the CPU kernels for every scheme", "[operators]") {
  for (const Scheme& scheme : schemes()) {
    for (const auto& [in_features, group_size] : kShapes) {
      if (!has_code_of_zero(scheme) && group_size % 16 != 0) continue;
      const Packed p = pack(40, in_features, group_size, scheme);
      CHECK(composite::dequantize(p.weight(), in_features, at::kFloat).equal(p.dense));
      for (const std::int64_t rows : {1, 5, 40}) {
        const at::Tensor x = at::randn({2, rows, in_features});
        const at::Tensor bias = at::randn({40});
        INFO(scheme.name << " " << in_features << "/" << group_size << ", " << rows << " rows");
        const at::Tensor wanted = composite::low_bit_linear(x, p.weight(), bias, std::nullopt, "float");
        CHECK(relative_difference(low_bit_linear(x, p.weight(), bias), wanted) < 1e-5);
        CHECK(relative_difference(wanted, at::linear(x, p.dense, bias)) < 1e-5);
      }
    }
  }
}

TEST_CASE("every dtype of activation, weight and result is accepted as it is", "[operators]") {
  const Packed p = pack(24, 128, 64, schemes()[0]);
  for (const std::int64_t rows : {1, 20}) {
    const at::Tensor x = at::randn({rows, 128});
    for (const at::ScalarType in : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const at::ScalarType out : {at::kFloat, at::kHalf, at::kBFloat16}) {
        const at::Tensor wanted = at::matmul(x.to(in).to(at::kFloat), p.dense.t());
        const at::Tensor result = low_bit_linear(x.to(in), p.weight(), std::nullopt, out);
        INFO(in << " -> " << out << ", " << rows << " rows");
        CHECK(result.scalar_type() == out);
        // bfloat16 products round the unpacked weight to bfloat16 as well.
        CHECK(relative_difference(result, wanted) < (in == at::kBFloat16 || out == at::kBFloat16 ? 1e-2 : 2e-3));
        for (const at::ScalarType weight : {at::kFloat, at::kHalf, at::kBFloat16}) {
          CHECK(relative_difference(dense_linear(x.to(in), p.dense.to(weight), std::nullopt, out), wanted) < 1e-2);
        }
      }
    }
  }
}

TEST_CASE("every operator answers on Meta through its composite form", "[operators]") {
  const at::TensorOptions meta = at::TensorOptions().device(at::kMeta);
  const at::Tensor x = at::empty({3, 128}, meta);
  const at::Tensor codes = at::empty({24, 16}, meta.dtype(at::kInt));
  const at::Tensor scales = at::empty({24, 2}, meta.dtype(at::kHalf));
  CHECK(low_bit_linear(x, {codes, scales, "sym_int4", 64}).sizes() == at::IntArrayRef({3, 24}));
  CHECK(dense_linear(x, at::empty({24, 128}, meta), std::nullopt).sizes() == at::IntArrayRef({3, 24}));
  CHECK(dequantize({codes, scales, "sym_int4", 64}, 128, at::kHalf).sizes() == at::IntArrayRef({24, 128}));
  const at::Tensor keys = at::empty({2, 2, 9, 8}, meta);
  CHECK(decode_attention(at::empty({2, 4, 1, 8}, meta), keys, keys, 1).sizes() == at::IntArrayRef({2, 1, 4, 8}));
  CHECK(rms_norm(x, at::empty({128}, meta), 1e-6).sizes() == x.sizes());
  const std::vector<PackedWeight> several(2, PackedWeight{codes, scales, "sym_int4", 64});
  CHECK(low_bit_linears(x, several)[1].sizes() == at::IntArrayRef({3, 24}));
  const at::Tensor table = at::empty({1, 9, 8}, meta);
  CHECK(std::get<1>(rotary_embedding(keys, keys, table, table)).sizes() == keys.sizes());
  CHECK(gated_product(x, x, "silu").sizes() == x.sizes());
}

TEST_CASE("every operator has a kernel for every key that a backend can arrive with", "[operators]") {
  register_operators();
  for (const char* name :
       {"halfbyte::low_bit_linear", "halfbyte::dense_linear", "halfbyte::dequantize", "halfbyte::decode_attention",
        "halfbyte::rms_norm", "halfbyte::low_bit_linears", "halfbyte::rotary_embedding", "halfbyte::gated_product"}) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
    for (const c10::DispatchKey key :
         {c10::DispatchKey::CPU, c10::DispatchKey::CUDA, c10::DispatchKey::XPU, c10::DispatchKey::MPS,
          c10::DispatchKey::Meta, c10::DispatchKey::HPU, c10::DispatchKey::PrivateUse1}) {
      INFO(name << " " << c10::toString(key));
      CHECK(op.hasComputedKernelForDispatchKey(key));
    }
  }
}

TEST_CASE("gradients equal those of the dense product and finite differences", "[operators]") {
  const Packed p = pack(6, 32, 16, schemes()[0]);
  const at::Tensor x = at::randn({2, 3, 32}).requires_grad_();
  const at::Tensor bias = at::randn({6}).requires_grad_();
  const at::Tensor weight = p.dense.clone().requires_grad_();
  const at::Tensor seed = at::randn({2, 3, 6});
  low_bit_linear(x, p.weight(), bias).mul(seed).sum().backward();
  const at::Tensor x_gradient = x.grad().clone();
  const at::Tensor bias_gradient = bias.grad().clone();
  x.mutable_grad() = at::Tensor();
  bias.mutable_grad() = at::Tensor();
  dense_linear(x, weight, bias).mul(seed).sum().backward();
  CHECK(relative_difference(x.grad(), x_gradient) < 1e-5);
  CHECK(relative_difference(bias.grad(), bias_gradient) < 1e-5);
  const at::Tensor weight_gradient = weight.grad().clone();
  x.mutable_grad() = at::Tensor();
  at::linear(x, weight, bias).mul(seed).sum().backward();
  CHECK(relative_difference(x_gradient, x.grad()) < 1e-5);
  CHECK(relative_difference(weight_gradient, weight.grad().sub(weight_gradient)) < 1e-5);
  // The product is linear, so a wide step is exact but for rounding.
  const at::NoGradGuard guard;
  for (const std::int64_t k : {0, 13, 31}) {
    at::Tensor moved = x.detach().clone();
    moved.index({1, 2, k}).add_(0.5);
    const at::Tensor difference =
        low_bit_linear(moved, p.weight(), bias).mul(seed).sum() - low_bit_linear(x, p.weight(), bias).mul(seed).sum();
    CHECK(difference.item<double>() / 0.5 == Approx(x_gradient.index({1, 2, k}).item<double>()).margin(1e-4));
  }
}

TEST_CASE("autocast casts the activation and nothing else", "[operators]") {
  const Packed p = pack(24, 128, 64, schemes()[0]);
  const at::Tensor x = at::randn({4, 128});
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::Tensor low_bit = low_bit_linear(x, p.weight(), std::nullopt);
  const at::Tensor dense = dense_linear(x, p.dense, std::nullopt);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(low_bit.scalar_type() == at::kBFloat16);
  CHECK(dense.scalar_type() == at::kBFloat16);
  CHECK(low_bit.equal(low_bit_linear(x.to(at::kBFloat16), p.weight(), std::nullopt)));
}

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("operands that do not fit are named", "[operators]") {
  const Packed p = pack(24, 128, 64, schemes()[0]);
  const at::Tensor x = at::randn({4, 128});
  const auto call = [&](const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                        const std::optional<at::Tensor>& bias, std::string_view scheme, std::int64_t group) {
    return refusal([&] { low_bit_linear(input, {codes, scales, scheme, group}, bias); });
  };
  using Catch::Contains;
  const at::Tensor meta = x.to(at::kMeta);
  CHECK_THAT(call(meta, p.codes, p.scales, std::nullopt, "sym_int4", 64),
             Contains("codes is on cpu but input is on meta"));
  CHECK_THAT(call(x, p.codes, p.scales.to(at::kMeta), std::nullopt, "sym_int4", 64), Contains("scales is on meta"));
  CHECK_THAT(call(x.to(at::kDouble), p.codes, p.scales, std::nullopt, "sym_int4", 64), Contains("input is float64"));
  CHECK_THAT(call(x, p.codes.to(at::kFloat), p.scales, std::nullopt, "sym_int4", 64), Contains("codes must be"));
  CHECK_THAT(call(x, p.codes, p.scales, std::nullopt, "sym_int3", 64), Contains("\"sym_int3\" is not known"));
  CHECK_THAT(call(x, p.codes, p.scales, std::nullopt, "sym_int4", 0), Contains("group_size 0"));
  CHECK_THAT(call(x, p.codes, p.scales, std::nullopt, "sym_int4", 32), Contains("scales have shape"));
  CHECK_THAT(call(x.narrow(1, 0, 64), p.codes, p.scales, std::nullopt, "sym_int4", 64),
             Contains("input has shape [4, 64]") && Contains("expect (..., 128)"));
  CHECK_THAT(call(x, p.codes, p.scales, at::ones({23}), "sym_int4", 64), Contains("bias has shape [23]"));
  CHECK_THAT(refusal([&] { dense_linear(x, at::ones({4, 64}), std::nullopt); }), Contains("expected (..., 64)"));
  CHECK_THAT(refusal([&] { dense_linear(x, at::ones({128}), std::nullopt); }), Contains("weight has shape [128]"));
}

TEST_CASE("empty batches and strided inputs are handled", "[operators]") {
  const Packed p = pack(24, 128, 64, schemes()[0]);
  CHECK(dense_linear(at::ones({3, 0}), at::ones({4, 0}), at::ones({4})).equal(at::ones({3, 4})));
  CHECK(low_bit_linear(at::empty({0, 128}), p.weight(), std::nullopt).sizes() == at::IntArrayRef({0, 24}));
  const at::Tensor none = at::ones({3, 0}), row = at::ones({128});
  CHECK(composite::dense_linear(none, at::ones({4, 0}), at::ones({4}), std::nullopt).equal(at::ones({3, 4})));
  CHECK(composite::low_bit_linear(row, p.weight(), std::nullopt, std::nullopt, "float").sizes() == at::IntArrayRef(24));
  CHECK(composite::low_bit_linear(at::empty({0, 128}), p.weight(), std::nullopt, std::nullopt, "float").size(0) == 0);
  const at::Tensor back = composite::low_bit_linear_transposed(at::ones({24}), p.weight(), 128, std::nullopt);
  CHECK(back.sizes() == at::IntArrayRef(128));
  const at::Tensor wide = at::randn({4, 256});
  const at::Tensor strided = wide.narrow(1, 64, 128);
  CHECK(low_bit_linear(strided, p.weight(), std::nullopt)
            .equal(low_bit_linear(strided.contiguous(), p.weight(), std::nullopt)));
}

}  // namespace
}  // namespace halfbyte::operators
