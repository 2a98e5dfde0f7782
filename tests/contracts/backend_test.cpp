// "Could not run ... with arguments from the ... backend": every operator of halfbyte answers on every backend, with
// the CPU kernels' numbers and right gradients; tensors on two devices are refused by name.
#include "tests/catch.h"

#include <set>

#include <torch/library.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <halfbyte/low_bit_linear.h>
#include <halfbyte/operators.h>
#include <halfbyte/training.h>

#include "tests/contracts/fake_device.h"
#include "tests/contracts/packed_weight.h"

namespace halfbyte {
namespace {

using c10::DispatchKey;
using Catch::Contains;
using tests::difference;
using tests::kFakeDevice;
using tests::message_of;
using tests::packed_weight;

// An operator as torch_ipex::mul_add was: of one backend alone.
at::Tensor mul_add(const at::Tensor& a, const at::Tensor& b) { return a * 2 + b; }
TORCH_LIBRARY(contract_demo, m) { m.def("mul_add(Tensor a, Tensor b) -> Tensor"); }
TORCH_LIBRARY_IMPL(contract_demo, XPU, m) { m.impl("mul_add", TORCH_FN(mul_add)); }

constexpr DispatchKey kBackends[] = {DispatchKey::CPU,  DispatchKey::CUDA,  DispatchKey::XPU,  DispatchKey::MPS,
                                     DispatchKey::HPU,  DispatchKey::IPU,   DispatchKey::XLA,  DispatchKey::MTIA,
                                     DispatchKey::MAIA, DispatchKey::VE,    DispatchKey::Meta, DispatchKey::PrivateUse1,
                                     DispatchKey::Lazy, DispatchKey::Vulkan};
constexpr DispatchKey kAutograd[] = {
    DispatchKey::AutogradCPU,         DispatchKey::AutogradCUDA, DispatchKey::AutogradXPU,  DispatchKey::AutogradMPS,
    DispatchKey::AutogradHPU,         DispatchKey::AutogradXLA,  DispatchKey::AutogradMTIA, DispatchKey::AutogradMeta,
    DispatchKey::AutogradPrivateUse1, DispatchKey::AutogradOther};
constexpr DispatchKey kAutocast[] = {
    DispatchKey::AutocastCPU,  DispatchKey::AutocastCUDA,       DispatchKey::AutocastXPU, DispatchKey::AutocastMPS,
    DispatchKey::AutocastHPU,  DispatchKey::AutocastIPU,        DispatchKey::AutocastXLA, DispatchKey::AutocastMTIA,
    DispatchKey::AutocastMAIA, DispatchKey::AutocastPrivateUse1};

std::vector<c10::OperatorHandle> operators_of(const std::string& wanted_namespace) {
  std::vector<c10::OperatorHandle> out;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.name.rfind(wanted_namespace + "::", 0) != 0) continue;
    out.push_back(c10::Dispatcher::singleton().findOp(name).value());
  }
  return out;
}

TEST_CASE("no kernel for this backend: LibTorch refuses an operator of another backend", "[contract][backend]") {
  const at::Tensor x = at::ones({2});
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("contract_demo::mul_add", "")
                      .typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
  CHECK_THAT(message_of([&] { op.call(x, x); }),
             Contains("Could not run 'contract_demo::mul_add' with arguments from the 'CPU' backend"));
  // The check of the next test sees that.
  const auto handle = operators_of("contract_demo").at(0);
  CHECK(handle.hasComputedKernelForDispatchKey(DispatchKey::XPU));
  CHECK_FALSE(handle.hasComputedKernelForDispatchKey(DispatchKey::CPU));
}

TEST_CASE("no kernel for this backend: every operator of halfbyte has one for every key", "[contract][backend]") {
  operators::register_operators();
  std::set<std::string> names;
  for (const c10::OperatorHandle& op : operators_of("halfbyte")) {
    names.insert(op.schema().name());
    for (const DispatchKey key : kBackends) {
      INFO(op.schema().name() << " " << c10::toString(key));
      CHECK(op.hasComputedKernelForDispatchKey(key));
    }
    for (const DispatchKey key : kAutograd) {
      INFO(op.schema().name() << " " << c10::toString(key));
      CHECK(op.hasComputedKernelForDispatchKey(key));
    }
    CHECK(op.hasKernelForDispatchKey(DispatchKey::CPU));
    CHECK(op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd));
    CHECK(op.hasKernelForDispatchKey(DispatchKey::Autograd));
    for (const DispatchKey key : kAutocast) {
      INFO(op.schema().name() << " " << c10::toString(key));
      CHECK(op.hasKernelForDispatchKey(key));
    }
  }
  CHECK(names == std::set<std::string>{"halfbyte::low_bit_linear", "halfbyte::low_bit_linear_transposed",
                                       "halfbyte::dense_linear", "halfbyte::dequantize", "halfbyte::decode_attention",
                                       "halfbyte::rms_norm", "halfbyte::low_bit_linears", "halfbyte::rotary_embedding",
                                       "halfbyte::gated_product"});
}

struct Shape {
  std::int64_t out_features, in_features, group_size;
};
constexpr Shape kShapes[] = {{40, 128, 64}, {9, 96, 32}, {17, 64, 64}};

TEST_CASE("no kernel for this backend: another device gives the CPU kernels' numbers, every scheme",
          "[contract][backend]") {
  at::manual_seed(1);
  for (const Scheme& scheme : schemes()) {
    for (const Shape& shape : kShapes) {
      INFO(scheme.name << " " << shape.out_features << "x" << shape.in_features);
      const LowBitTensor weight = packed_weight(scheme, shape.out_features, shape.in_features, shape.group_size);
      const LowBitTensor there = weight.to(kFakeDevice);
      REQUIRE(there.device().type() == kFakeDevice);
      CHECK(there.dequantize(at::kFloat).cpu().equal(weight.dequantize(at::kFloat)));
      const at::Tensor x = at::randn({2, 3, shape.in_features});
      const at::Tensor bias = at::randn({shape.out_features});
      for (const auto& [type, bound] :
           {std::pair(at::kFloat, 1e-5), std::pair(at::kHalf, 4e-3), std::pair(at::kBFloat16, 3e-2)}) {
        const at::Tensor y = there.multiply(x.to(type).to(kFakeDevice), bias.to(kFakeDevice));
        CHECK(y.device().type() == kFakeDevice);
        CHECK(y.scalar_type() == type);
        CHECK(difference(y, weight.multiply(x.to(type), bias)) < bound);
      }
    }
  }
  const at::Tensor x = at::randn({5, 64});
  const at::Tensor dense = at::randn({24, 64}, at::kBFloat16);
  const at::Tensor y = operators::dense_linear(x.to(kFakeDevice), dense.to(kFakeDevice), std::nullopt);
  CHECK(difference(y, operators::dense_linear(x, dense, std::nullopt)) < 1e-5);
}

TEST_CASE("no kernel for this backend: a host's module moves to another device, and its autocast is obeyed",
          "[contract][backend]") {
  at::manual_seed(2);
  auto linear = std::make_shared<LowBitLinear>(packed_weight(schemes()[0], 24, 64, 32));
  const at::Tensor x = at::randn({3, 64});
  const at::Tensor wanted = linear->forward(x);
  torch::nn::Sequential host(linear);
  LowBitLinear meta(linear->weight());
  meta.to(at::kMeta);
  host->to(kFakeDevice);
  CHECK(difference(host->forward(x.to(kFakeDevice)), wanted) < 1e-5);
  {
    const Autocast autocast(at::kBFloat16, kFakeDevice);
    CHECK(host->forward(x.to(kFakeDevice)).scalar_type() == at::kBFloat16);
  }
  CHECK(host->forward(x.to(kFakeDevice)).scalar_type() == at::kFloat);
  CHECK(meta.forward(x.to(at::kMeta)).sizes() == at::IntArrayRef({3, 24}));
}

TEST_CASE("no kernel for this backend: on two devices both are named", "[contract][backend]") {
  const LowBitTensor weight = packed_weight(schemes()[0], 24, 64, 32);
  const at::Tensor x = at::randn({3, 64});
  // LibTorch's own words, or none: a Meta tensor swallows the CPU's.
  CHECK_FALSE(message_of([&] { at::linear(x, at::randn({24, 64}).to(kFakeDevice)); }).empty());
  for (const at::Device device : {at::Device(kFakeDevice, 0), at::Device(at::kMeta)}) {
    const std::string name = device.str();
    CHECK_THAT(message_of([&] { weight.to(device).multiply(x); }),
               Contains(name) && Contains("cpu") && Contains(".to()"));
    CHECK_THAT(message_of([&] { weight.multiply(x.to(device)); }),
               Contains(name) && Contains("cpu") && Contains(".to()"));
    CHECK_THAT(message_of([&] { weight.multiply(x, at::ones({24}).to(device)); }), Contains("bias is on " + name));
    CHECK_THAT(message_of([&] {
                 operators::dense_linear(x.to(device), at::ones({24, 64}), std::nullopt);
               }),
               Contains("weight is on cpu but input is on " + name));
    LowBitLinear linear(weight);
    linear.set_path("mlp.up");
    CHECK_THAT(message_of([&] { linear.forward(x.to(device)); }), Contains("mlp.up: the input is on " + name));
  }
}

TEST_CASE("no kernel for this backend: a device that is not there is an error in our words", "[contract][backend]") {
  if (at::hasCUDA()) HALFBYTE_SKIP("this LibTorch has CUDA");
  const LowBitTensor weight = packed_weight(schemes()[0], 24, 64, 32);
  const std::string raw = message_of([&] { weight.codes.to(at::kCUDA); });
  INFO(raw);
  const std::string message = message_of([&] { LowBitLinear(weight).to(at::kCUDA); });
  CHECK_THAT(message, Contains("moving codes int32 [24, 8] on cpu to cuda") && Contains("halfbyte doctor"));
  CHECK(message.find('\n') == std::string::npos);
}

// Sum of the result's products with fixed values: its gradient is what finite differences are compared with.
template <class Function>
void check_gradient(const char* what, const at::Tensor& at_value, const Function& function, double bound) {
  const at::Tensor value = at_value.detach().clone().requires_grad_();
  function(value).backward();
  REQUIRE(value.grad().defined());
  const at::NoGradGuard guard;
  // The functions are linear in each operand, so that a wide step has rounding errors only.
  for (int trial = 0; trial < 3; ++trial) {
    const at::Tensor direction = at::randn(value.sizes()).to(value.device());
    const double found = (value.grad() * direction).sum().template item<double>();
    const double wanted = (function(value + direction) - function(value - direction)).template item<double>() / 2;
    const double size = value.grad().norm().template item<double>() * direction.norm().template item<double>();
    INFO(what << " " << found << " " << wanted);
    CHECK(std::abs(found - wanted) < bound * size);
  }
}

// Of |gradient| |direction|; measured below 1e-6.
constexpr double kGradientBound = 1e-5;

void check_packed_gradients(const Scheme& scheme, at::Device device) {
  const LowBitTensor w = packed_weight(scheme, 12, 64, 32).to(device);
  const at::Tensor x = at::randn({2, 3, 64}).to(device);
  const at::Tensor bias = at::randn({12}).to(device);
  const at::Tensor seed = at::randn({2, 3, 12}).to(device);
  const auto product = [&](const at::Tensor& input, const at::Tensor& scales, const at::Tensor& b) {
    operators::PackedWeight weight = w.packed();
    weight.scales = scales;
    return operators::low_bit_linear(input, weight, b).mul(seed).sum();
  };
  check_gradient(
      "input", x, [&](const at::Tensor& v) { return product(v, w.scales, bias); }, kGradientBound);
  check_gradient(
      "bias", bias, [&](const at::Tensor& v) { return product(x, w.scales, v); }, kGradientBound);
  if (has_row_scales(scheme)) return;  // whole numbers have no gradient
  check_gradient(
      "scales", w.scales, [&](const at::Tensor& v) { return product(x, v, bias); }, kGradientBound);
  const at::Tensor output = at::randn({2, 3, 12}).to(device), input_seed = at::randn({2, 3, 64}).to(device);
  const auto transposed = [&](const at::Tensor& of, const at::Tensor& scales) {
    operators::PackedWeight weight = w.packed();
    weight.scales = scales;
    return operators::low_bit_linear_transposed(of, weight, 64).mul(input_seed).sum();
  };
  check_gradient(
      "input of the transposed product", output, [&](const at::Tensor& v) { return transposed(v, w.scales); },
      kGradientBound);
  check_gradient(
      "scales of the transposed product", w.scales, [&](const at::Tensor& v) { return transposed(output, v); },
      kGradientBound);
  const at::Tensor dense_seed = at::randn({12, 64}).to(device);
  check_gradient(
      "scales of dequantize", w.scales,
      [&](const at::Tensor& v) {
        return operators::dequantize({w.codes, v, scheme.name, 32, w.zero_points, w.offsets}, 64, at::kFloat)
            .mul(dense_seed)
            .sum();
      },
      kGradientBound);
}

void check_dense_gradients(at::Device device) {
  const at::Tensor x = at::randn({5, 16}).to(device), weight = at::randn({7, 16}).to(device);
  const at::Tensor bias = at::randn({7}).to(device), seed = at::randn({5, 7}).to(device);
  const auto dense = [&](const at::Tensor& i, const at::Tensor& w, const at::Tensor& b) {
    return operators::dense_linear(i, w, b).mul(seed).sum();
  };
  check_gradient(
      "input", x, [&](const at::Tensor& v) { return dense(v, weight, bias); }, kGradientBound);
  check_gradient(
      "weight", weight, [&](const at::Tensor& v) { return dense(x, v, bias); }, kGradientBound);
  check_gradient(
      "bias", bias, [&](const at::Tensor& v) { return dense(x, weight, v); }, kGradientBound);
}

TEST_CASE("no kernel for this backend: gradients equal finite differences, every scheme and device",
          "[contract][backend]") {
  at::manual_seed(3);
  for (const at::Device device : {at::Device(at::kCPU), at::Device(kFakeDevice, 0)}) {
    for (const Scheme& scheme : schemes()) {
      INFO(scheme.name << " on " << device.str());
      check_packed_gradients(scheme, device);
    }
    check_dense_gradients(device);
  }
}

TEST_CASE("no kernel for this backend: gradients keep each operand's dtype, and one row or none has one too",
          "[contract][backend]") {
  const LowBitTensor w = packed_weight(schemes()[0], 12, 64, 32);
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{64}, {1, 64}, {0, 64}}) {
      INFO(type << " " << shape);
      const at::Tensor x = at::randn(shape).to(type).requires_grad_();
      const at::Tensor bias = at::zeros({12}, at::kFloat).requires_grad_();
      w.multiply(x, bias).sum().backward();
      CHECK(x.grad().scalar_type() == type);
      CHECK(x.grad().sizes() == x.sizes());
      CHECK(bias.grad().scalar_type() == at::kFloat);
      CHECK(bias.grad().sum().item<double>() == Approx(x.numel() / 64 * 12));
    }
  }
}

TEST_CASE("no kernel for this backend: autocast on the CPU is obeyed, gradients come back in float32",
          "[contract][backend]") {
  at::manual_seed(4);
  const LowBitTensor w = packed_weight(schemes()[0], 24, 64, 32);
  const at::Tensor dense = w.dequantize(at::kFloat);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::randn({3, 64}).requires_grad_();
    const at::Tensor master = dense.clone().requires_grad_();
    at::Tensor low_bit, product;
    {
      const Autocast autocast(type);
      low_bit = w.multiply(x);
      product = operators::dense_linear(x, master, std::nullopt);
      CHECK(at::linear(x, master).scalar_type() == type);  // as LibTorch's own
    }
    CHECK(low_bit.scalar_type() == type);
    CHECK(product.scalar_type() == type);
    (low_bit.sum() + product.sum()).backward();
    CHECK(x.grad().scalar_type() == at::kFloat);
    CHECK(master.grad().scalar_type() == at::kFloat);
    CHECK(difference(x.grad(), at::ones({3, 24}).matmul(dense) * 2) < 2e-2);
    CHECK(difference(master.grad(), at::ones({24, 3}).matmul(x.detach())) < 2e-2);
  }
  CHECK(w.multiply(at::randn({3, 64})).scalar_type() == at::kFloat);
}

}  // namespace
}  // namespace halfbyte
