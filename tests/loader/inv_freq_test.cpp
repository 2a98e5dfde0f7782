// The report that began the project: "RuntimeError: inv_freq.scalar_type() == query.scalar_type()" after load_low_bit.
// Source: intel-analytics/ipex-llm issue 12385.
#include "tests/catch.h"

#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include "models/modules/rotary.h"
#include "quant/operators/torch_dtype.h"
#include "tests/models/reference.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

// What the field's tools do by hand: cast the module, and hope that its buffers follow.
struct PlainRotary : torch::nn::Module {
  PlainRotary() { inv_freq = at::arange(16, at::kFloat).mul(-0.5).exp(); }  // a plain member: .to() does not reach it
  at::Tensor turn(const at::Tensor& query, const at::Tensor& positions) {
    const at::Tensor angles = at::matmul(positions.to(query.scalar_type()).unsqueeze(1), inv_freq.unsqueeze(0));
    return query * angles.cos();
  }
  at::Tensor inv_freq;
};

TEST_CASE("inv_freq: plain LibTorch fails when a rotary buffer and the queries differ in dtype", "[inv_freq]") {
  PlainRotary rotary;
  rotary.to(at::kHalf);
  const at::Tensor query = at::ones({8, 16}, at::kHalf);
  CHECK_THROWS_WITH(rotary.turn(query, at::arange(8)), Catch::Contains("same dtype"));
  rotary.inv_freq = rotary.inv_freq.to(at::kHalf);  // the accepted cure
  CHECK_NOTHROW(rotary.turn(query, at::arange(8)));
}

TEST_CASE("inv_freq: the rotary table has the queries' dtype under every policy", "[inv_freq]") {
  for (const char* text : {"float32", "amp:bfloat16", "amp:float16", "half", "bfloat16", "original"}) {
    INFO(text);
    const DtypePolicy policy = DtypePolicy::parse(text);
    const Model model = load_low_bit(tests::data("tiny-llama"), {.dtype = policy});
    // The forward pass refuses a table of another dtype than the query (models/modules/rotary.cpp), so it is the check.
    const c10::InferenceMode guard;
    const at::Tensor logits = model.module().forward(at::tensor({1, 300, 301, 302}).unsqueeze(0));
    CHECK(logits.scalar_type() == at::kFloat);
    CHECK(logits.isfinite().all().item<bool>());
    // A host that casts the module afterwards reaches the registered buffer, and still breaks nothing there.
    model.module().to(at::kHalf);
    CHECK(model.module().named_buffers()["model.rotary_emb.inv_freq"].scalar_type() == at::kHalf);
    CHECK(models::Rotary::of(model.module().make_session(), 0, 0, 4, at::kCPU).cosine.scalar_type() ==
          *to_torch(policy.stream().value_or(Dtype::kFloat32)));
  }
}

// ChatGLM2 stores its inv_freq, in float16.
constexpr const char* kStored = "transformer.rotary_pos_emb.inv_freq";

at::Tensor logits_of(const std::filesystem::path& directory, const DtypePolicy& policy) {
  const Model model = load_low_bit(directory, {.dtype = policy});
  const c10::InferenceMode guard;
  return model.module().forward(tests::read_tensor(directory / "reference.safetensors", "input_ids"));
}

TEST_CASE("inv_freq: a persistent float16 buffer follows every policy, and predictions stay right", "[inv_freq]") {
  struct Case {
    const char* policy;
    at::ScalarType buffer;
    double bound;  // of logits, relative to the largest
  };
  const Case cases[] = {{"float32", at::kFloat, 2e-4},     {"half", at::kHalf, 4e-3},
                        {"amp:float16", at::kHalf, 4e-3},  {"amp:bfloat16", at::kHalf, 3e-2},
                        {"bfloat16", at::kBFloat16, 3e-2}, {"original", at::kHalf, 4e-3}};
  const auto directory = tests::data("families") / "chatglm2";
  const at::Tensor wanted = tests::read_tensor(directory / "reference.safetensors", "logits").to(at::kFloat);
  for (const Case& test : cases) {
    INFO(test.policy);
    const DtypePolicy policy = DtypePolicy::parse(test.policy);
    const Model model = load_low_bit(directory, {.dtype = policy});
    CHECK(model.module().named_buffers()[kStored].scalar_type() == test.buffer);
    const at::Tensor difference = (logits_of(directory, policy) - wanted).abs().max() / wanted.abs().max();
    INFO(difference.item<double>());
    CHECK(difference.item<double>() <= test.bound);
  }
}

TEST_CASE("inv_freq: a naive cast of it is worse than a cast of the table", "[inv_freq]") {
  const auto directory = tests::data("families") / "chatglm2";
  const Model exact = load_low_bit(directory, {.dtype = DtypePolicy::float32()});
  const Model half = load_low_bit(directory, {.dtype = DtypePolicy::half()});
  constexpr std::int64_t kPositions = 256;  // the model's context
  const at::Tensor wanted = models::Rotary::of(exact.module().make_session(), 0, 0, kPositions, at::kCPU).cosine;
  const at::Tensor ours = models::Rotary::of(half.module().make_session(), 0, 0, kPositions, at::kCPU).cosine;
  // What .half() makes of it elsewhere: the buffer rounded, and the angles as products of it.
  const at::Tensor stored = half.module().named_buffers()[kStored];
  const at::Tensor naive = at::outer(at::arange(kPositions, at::kHalf), stored).cos();
  const auto error = [&](const at::Tensor& table) {
    return (table.to(at::kFloat) - wanted).abs().max().item<double>();
  };
  CHECK(error(ours) < 3e-4);  // one rounding to float16
  CHECK(error(naive) > 50 * error(ours));
}

}  // namespace
}  // namespace halfbyte
