// The report that began the project: "RuntimeError: inv_freq.scalar_type() == query.scalar_type()" after load_low_bit.
// Source: intel-analytics/ipex-llm issue 12385.
#include "tests/catch.h"

#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include "models/modules/session.h"
#include "quant/operators/torch_dtype.h"
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
    CHECK(model.module().make_session(1, 4).rotary().cosine.scalar_type() ==
          *to_torch(policy.stream().value_or(Dtype::kFloat32)));
  }
}

}  // namespace
}  // namespace halfbyte
