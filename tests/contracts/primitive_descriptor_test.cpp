// "could not create a primitive descriptor": dtypes that oneDNN does not multiply, on this CPU or with each other. Run
// with lesser CPUs too (contracts.cmake), by the variables that hold LibTorch, oneDNN and halfbyte to them.
#include "tests/catch.h"

#include <cstdlib>

#include <torch/nn/modules/linear.h>

#include <halfbyte/backend_error.h>
#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/low_bit_linear.h>
#include <halfbyte/operators.h>

#include "quant/kernels/cpu_products.h"
#include "quant/operators/translate.h"
#include "tests/contracts/packed_weight.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using Catch::Contains;
using tests::difference;
using tests::message_of;
using tests::packed_weight;

constexpr const char* kRawWords = "could not create a primitive descriptor";
constexpr const char* kPolicies[] = {"amp:bfloat16", "amp:float16", "half", "bfloat16", "float32", "original"};

// LibTorch's own oneDNN, asked as intel-extension-for-pytorch asks it.
at::Tensor onednn_linear(const at::Tensor& input, const at::Tensor& weight) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::string_view,
                               c10::List<std::optional<at::Scalar>>, std::optional<std::string_view>);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Signature>();
  return op.call(input, weight, std::nullopt, "none", c10::List<std::optional<at::Scalar>>(), std::nullopt);
}

bool torch_supports(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<bool()>().call();
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
  return value ? value : "";
}

// What every message of ours keeps to.
void check_is_ours(const std::string& message) {
  INFO("message: " << message);
  CHECK_FALSE(message.empty());
  CHECK(message.find('\n') == std::string::npos);
  for (const char* raw : {"primitive", "c10::", "at::native", "Exception raised", "m1 and m2", "mkldnn", "frame #"}) {
    CHECK(message.find(raw) == std::string::npos);
  }
}

const TokenIds kPrompt{1, 5, 9, 40, 7, 3, 88, 120, 6, 2, 15, 61};  // more than kDirectRows: oneDNN where it is fit

// Both kernels of a product, few rows and many, against float32.
void check_products(at::ScalarType input, at::ScalarType weight, double bound) {
  at::manual_seed(1);
  const at::Tensor dense = at::randn({48, 64}).to(weight);
  const LowBitTensor packed = packed_weight(schemes()[0], 48, 64, 32);
  for (const std::int64_t rows : {1, 40}) {
    INFO(input << " x " << weight << ", " << rows << " rows");
    const at::Tensor x = at::randn({rows, 64}).to(input);
    const at::Tensor y = operators::dense_linear(x, dense, std::nullopt);
    CHECK(y.scalar_type() == input);
    CHECK(difference(y, at::linear(x.to(at::kFloat), dense.to(at::kFloat))) < bound);
    CHECK(difference(packed.multiply(x), at::linear(x.to(at::kFloat), packed.dequantize(at::kFloat))) < bound);
  }
}

TEST_CASE("primitive descriptor: float32 input with bfloat16 weights", "[contract][primitive_descriptor]") {
  const at::Tensor x = at::randn({16, 64});
  const at::Tensor weight = at::randn({32, 64}).to(at::kBFloat16);
  CHECK_THAT(message_of([&] { onednn_linear(x, weight); }), Contains(kRawWords));
  CHECK_THAT(message_of([&] { at::linear(x, weight); }), Contains("same dtype"));
  torch::nn::Linear host(64, 32);
  host->to(at::kBFloat16);
  CHECK_THAT(message_of([&] { host->forward(x); }), Contains("dtype"));
  check_products(at::kFloat, at::kBFloat16, 1e-5);
  check_products(at::kBFloat16, at::kFloat, 2e-2);
  check_products(at::kFloat, at::kHalf, 1e-5);
  check_products(at::kHalf, at::kBFloat16, 4e-3);
}

TEST_CASE("primitive descriptor: float16 on a CPU without it", "[contract][primitive_descriptor]") {
  const at::Tensor x = at::randn({16, 64}, at::kHalf);
  const at::Tensor weight = at::randn({32, 64}, at::kHalf);
  if (!torch_supports("mkldnn::_is_mkldnn_fp16_supported")) {
    CHECK_THAT(message_of([&] { onednn_linear(x, weight); }), Contains(kRawWords));
    CHECK_THAT(quant::lacking_products(Dtype::kFloat16), Contains("FP16"));
  }
  check_products(at::kHalf, at::kHalf, 4e-3);
}

TEST_CASE("primitive descriptor: bfloat16 on a CPU without it", "[contract][primitive_descriptor]") {
  const at::Tensor x = at::randn({16, 64}, at::kBFloat16);
  const at::Tensor weight = at::randn({32, 64}, at::kBFloat16);
  const bool has_bfloat16 = torch_supports("mkldnn::_is_mkldnn_bf16_supported");
  if (variable("ONEDNN_MAX_CPU_ISA") == "AVX2") REQUIRE_FALSE(has_bfloat16);
  if (!has_bfloat16) {
    CHECK_THAT(message_of([&] { onednn_linear(x, weight); }), Contains(kRawWords));
    CHECK_THAT(quant::lacking_products(Dtype::kBfloat16), Contains("BF16"));
  }
  check_products(at::kBFloat16, at::kBFloat16, 2e-2);
}

TEST_CASE("primitive descriptor: a model generates under every policy, whatever this CPU has",
          "[contract][primitive_descriptor]") {
  const Model reference = load_low_bit(tests::data("tiny-llama"), {.dtype = DtypePolicy::float32()});
  const at::Tensor tokens = at::tensor(kPrompt).unsqueeze(0);
  const at::Tensor wanted = reference.module().forward(tokens);
  for (const char* policy : kPolicies) {
    INFO(policy);
    const Model model = load_low_bit(tests::data("tiny-llama"), {.dtype = DtypePolicy::parse(policy)});
    const at::Tensor logits = model.module().forward(tokens);
    CHECK(logits.isfinite().all().item<bool>());
    CHECK(difference(logits, wanted) < 5e-2);  // measured below 2e-2, bfloat16 throughout
    CHECK(model.generate({kPrompt}, {.max_gen_len = 4, .temperature = 0}).at(0).tokens.size() == 4);
  }
}

TEST_CASE("primitive descriptor: the report says which products this CPU does not have",
          "[contract][primitive_descriptor]") {
  const auto notes_of = [](const DtypePolicy& policy) {
    const Model model = load_low_bit(tests::data("tiny-llama"), {.dtype = policy});
    std::string text;
    for (const std::string& note : model.report().notes) text += note + "\n";
    return text;
  };
  CHECK_THAT(notes_of(DtypePolicy::half()), Contains("float16 products are computed in float32 registers"));
  const std::string lacking = quant::lacking_products(Dtype::kBfloat16);
  CHECK((notes_of(DtypePolicy::bfloat16()).find("bfloat16 products") != std::string::npos) == !lacking.empty());
  CHECK(notes_of(DtypePolicy::float32()).find("products are computed") == std::string::npos);
}

struct Refused {
  const char* name;
  ErrorCode code;
  std::vector<std::string> parts;
  std::function<at::Tensor()> call;
};

TEST_CASE("primitive descriptor: whatever LibTorch says becomes one line of ours", "[contract][primitive_descriptor]") {
  const at::Tensor x = at::randn({16, 64});
  const at::Tensor weight = at::randn({32, 64}, at::kBFloat16);
  at::Tensor inference;
  {
    const c10::InferenceMode guard;
    inference = at::randn({16, 64});
  }
  const at::Tensor trained = at::randn({32, 64}).requires_grad_();
  const std::vector<Refused> rows{
      {"oneDNN",
       ErrorCode::kUnsupported,
       {"oneDNN has no kernel", "dtype float32, in C++ DtypePolicy::float32()"},
       [&] { return onednn_linear(x, weight); }},
      {"dtypes",
       ErrorCode::kContract,
       {"different dtypes", "(dtype, DtypePolicy)"},
       [&] { return at::linear(x, weight); }},
      {"shapes",
       ErrorCode::kInvalidArgument,
       {"shapes do not fit"},
       [&] {
         return at::linear(x, at::ones({3, 5}));
       }},
      {"added shapes",
       ErrorCode::kInvalidArgument,
       {"shapes do not fit"},
       [&] { return at::ones({3}) + at::ones({4}); }},
      {"memory", ErrorCode::kNoResources, {"not enough memory"}, [&] { return at::empty({std::int64_t{1} << 55}); }},
      {"kernel",
       ErrorCode::kUnsupported,
       {"no kernel for it"},
       [&] { return at::linalg_cholesky(weight.t().matmul(weight)); }},
      {"Meta", ErrorCode::kContract, {"Meta"}, [&] { return x.to(at::kMeta).cpu(); }},
      {"InferenceMode", ErrorCode::kContract, {"InferenceMode"}, [&] { return at::linear(inference, trained); }}};
  for (const Refused& row : rows) {
    INFO(row.name);
    try {
      translated(
          [&] {
            return "model.layers.3.mlp.up_proj (" + describe({{"input", x}, {"weight", weight}}) + ")";
          },
          row.call);
      FAIL("nothing was refused");
    } catch (const BackendError& error) {
      const std::string message = error.what();
      check_is_ours(message);
      CHECK(static_cast<int>(error.code()) == static_cast<int>(row.code));
      CHECK_FALSE(error.detail().empty());
      CHECK_THAT(
          message,
          Contains("model.layers.3.mlp.up_proj (input float32 [16, 64] on cpu, weight bfloat16 [32, 64] on cpu)"));
      for (const std::string& part : row.parts) CHECK_THAT(message, Contains(part));
    }
  }
  CHECK_THAT(message_of([&] { translated([] { return "x"; }, [&] { return onednn_linear(x, weight); }); }),
             Contains(quant::lacking_products(Dtype::kFloat16)));
}

// A host's mistakes: the call, and what the message must say.
TEST_CASE("primitive descriptor: inputs that do not fit are refused by module, tensor and cure",
          "[contract][primitive_descriptor]") {
  LowBitLinear linear(packed_weight(schemes()[0], 24, 64, 32), at::ones({24}));
  linear.set_path("model.layers.0.mlp.up_proj");
  const at::Tensor x = at::randn({3, 64});
  const std::vector<Refused> rows{
      {"integers",
       ErrorCode::kContract,
       {"input is int64", ".to(at::kFloat)"},
       [&] {
         return linear.forward(at::ones({3, 64}, at::kLong));
       }},
      {"float64",
       ErrorCode::kContract,
       {"input is float64", ".to(at::kFloat)"},
       [&] { return linear.forward(x.to(at::kDouble)); }},
      {"last dimension",
       ErrorCode::kInvalidArgument,
       {"input has shape [3, 63]", "(..., 64)"},
       [&] {
         return linear.forward(at::ones({3, 63}));
       }},
      {"larger",
       ErrorCode::kInvalidArgument,
       {"input has shape [128]", "(..., 64)"},
       [&] { return linear.forward(at::ones({128})); }},
      {"rank", ErrorCode::kInvalidArgument, {"input has shape []"}, [&] { return linear.forward(at::ones({})); }},
      {"sparse", ErrorCode::kContract, {"Sparse", ".to_dense()"}, [&] { return linear.forward(x.to_sparse()); }},
      {"oneDNN's layout",
       ErrorCode::kContract,
       {"Mkldnn", ".to_dense()"},
       [&] { return linear.forward(x.to_mkldnn()); }},
      {"undefined", ErrorCode::kInvalidArgument, {"undefined"}, [&] { return linear.forward({}); }},
      {"Meta", ErrorCode::kContract, {"meta", "cpu"}, [&] { return linear.forward(x.to(at::kMeta)); }}};
  for (const bool wants_gradient : {false, true}) {
    linear.parameters()[0].requires_grad_(wants_gradient);
    for (const Refused& row : rows) {
      INFO(row.name);
      try {
        row.call();
        FAIL("nothing was refused");
      } catch (const Error& error) {
        CHECK(static_cast<int>(error.code()) == static_cast<int>(row.code));
        CHECK_THAT(error.what(), Catch::StartsWith("model.layers.0.mlp.up_proj: "));
        for (const std::string& part : row.parts) CHECK_THAT(error.what(), Contains(part));
        if (std::string(row.name) != "oneDNN's layout") check_is_ours(error.what());
      }
    }
  }
}

TEST_CASE("primitive descriptor: inputs that look odd and are fine", "[contract][primitive_descriptor]") {
  LowBitLinear linear(packed_weight(schemes()[0], 24, 64, 32), at::ones({24}));
  const at::Tensor x = at::randn({3, 64});
  const at::Tensor wanted = linear.forward(x);
  CHECK(linear.forward(at::empty({0, 64})).sizes() == at::IntArrayRef({0, 24}));
  CHECK(linear.forward(at::empty({2, 0, 64})).sizes() == at::IntArrayRef({2, 0, 24}));
  CHECK(linear.forward(x[0]).equal(linear.forward(x.narrow(0, 0, 1))[0]));
  CHECK(linear.forward(x.t().contiguous().t()).equal(wanted));
  CHECK(linear.forward(at::cat({x, x}, 1).narrow(1, 32, 64)).sizes() == wanted.sizes());
  CHECK(difference(linear.forward(x.unsqueeze(0).expand({5, 3, 64}))[4], wanted) < 1e-6);
  const at::Tensor trained = x.clone().requires_grad_();
  const c10::InferenceMode guard;
  const at::Tensor y = linear.forward(trained);
  CHECK_FALSE(y.requires_grad());
  CHECK(y.equal(wanted));
}

TEST_CASE("primitive descriptor: a model that a host broke names where and what", "[contract][primitive_descriptor]") {
  const at::Tensor tokens = at::tensor(kPrompt).unsqueeze(0);
  const auto broken = [&](const std::function<void(models::CausalLM&)>& mistake) {
    const Model model = load_low_bit(tests::data("tiny-llama"));
    mistake(model.module());
    const std::string message = message_of([&] { model.generate({kPrompt}, {.max_gen_len = 2}); });
    check_is_ours(message);
    CHECK(message == message_of([&] { model.module().forward(tokens); }));
    return message;
  };
  const auto norm_of = [](models::CausalLM& model) {
    return model.named_parameters()["model.layers.1.post_attention_layernorm.weight"];
  };
  CHECK_THAT(broken([&](models::CausalLM& model) { norm_of(model).set_data(at::ones({3})); }),
             Contains("model.layers.1") && Contains("shapes do not fit") && Contains("on cpu"));
  CHECK_THAT(broken([&](models::CausalLM& model) {
               model.named_parameters()["model.layers.0.mlp.up_proj.weight"].set_data(at::ones({3, 5}));
             }),
             Contains("model.layers.0.mlp.up_proj: ") && Contains("input has shape") && Contains("(..., 5)"));
  CHECK_THAT(broken([&](models::CausalLM& model) {
               model.named_parameters()["model.layers.0.mlp.up_proj.weight"].set_data(at::ones({3, 5}, at::kLong));
             }),
             Contains("model.layers.0.mlp.up_proj: ") && Contains("weight is int64"));
}

// Kernels check no shapes: what a host put in the place of a tensor must not reach them.
TEST_CASE("primitive descriptor: a tensor of another shape is refused, whichever it is",
          "[contract][primitive_descriptor]") {
  const Model model = load_low_bit(tests::data("tiny-llama"));
  const auto answer = [&] { model.generate({kPrompt}, {.max_gen_len = 2}); };
  for (auto& item : model.module().named_parameters()) {
    at::Tensor& parameter = item.value();
    const at::Tensor whole = parameter.data();
    const bool is_vector = whole.dim() == 1;
    for (const at::Tensor& other : {at::ones({3}), at::ones({3, 5}), whole.narrow(0, 0, whole.size(0) - 1),
                                    at::cat({whole, whole}), at::cat({whole, whole}, is_vector ? 0 : 1)}) {
      INFO(item.key() << " of shape " << other.sizes());
      parameter.set_data(other);
      const bool is_vocabulary = !is_vector && other.dim() == 2 && other.size(1) == whole.size(1) &&
                                 (item.key() == "lm_head.weight" || item.key() == "model.embed_tokens.weight");
      if (!is_vocabulary) check_is_ours(message_of(answer));  // more words or fewer are a model too
      parameter.set_data(whole);
    }
  }
  answer();
}

}  // namespace
}  // namespace halfbyte
