// Checkpoints of other tools, loaded as they are, beside what the tools themselves compute from them.
#include "tests/catch.h"

#include <algorithm>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "tests/models/reference.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

// bitsandbytes computed them in bfloat16 throughout. Measured: amp:bfloat16 .0081 to .0115, bfloat16 .0020 to .0128.
constexpr double kBound = 0.02;

// Largest difference of the logits, relative to the largest of the peer's.
double difference(const Model& model, const std::filesystem::path& file) {
  const c10::InferenceMode guard;
  const at::Tensor wanted = tests::read_tensor(file, "logits").to(at::kFloat);
  const at::Tensor logits = model.module().forward(tests::read_tensor(file, "input_ids")).to(at::kFloat);
  return ((logits - wanted).abs().max() / wanted.abs().max()).item<double>();
}

TEST_CASE("peers: bitsandbytes's files give its own logits, without converting", "[peers]") {
  tests::Scratch scratch;
  for (const char* name : {"bnb-nf4", "bnb-nf4-dq", "bnb-fp4"}) {
    const auto directory = tests::shared("fixtures/peers/" + std::string(name));
    if (!directory) HALFBYTE_SKIP("fixtures/peers is not here");
    convert::repack(*directory, scratch / name);
    for (const char* policy : {"amp:bfloat16", "bfloat16"}) {
      const Model model = load_low_bit(*directory, {.dtype = DtypePolicy::parse(policy)});
      const double found = difference(model, *directory / "logits.safetensors");
      INFO(name << " " << policy << ": " << found);
      CHECK(found <= kBound);
      const auto query =
          std::ranges::find(model.report().tensors, "model.layers.0.self_attn.q_proj.weight", &LoadedTensor::name);
      REQUIRE(query != model.report().tensors.end());
      CHECK(query->placement == Placement::kMapped);
      CHECK(difference(load_low_bit(scratch / name, {.dtype = DtypePolicy::parse(policy)}),
                       *directory / "logits.safetensors") == found);
    }
  }
}

}  // namespace
}  // namespace halfbyte
