#include "convert/calibrate/paired_pass.h"

#include <algorithm>
#include <map>
#include <set>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/randn.h>

#include <halfbyte/operators.h>

#include "convert/calibrate/correction.h"
#include "loader/files/checkpoint.h"
#include "models/modules/tap.h"
#include "tests/catch.h"
#include "tests/places.h"

using namespace halfbyte;
namespace calibrate = halfbyte::convert::calibrate;
using namespace halfbyte::convert::calibrate;

namespace {

constexpr std::int64_t kSequences = 3, kTokens = 24, kLayer = 1;

at::Tensor random(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kFloat));
}

double off(const at::Tensor& found, const at::Tensor& wanted) {
  return ((found - wanted).norm() / wanted.norm()).item<double>();
}

// What each product of the whole layer is given, by its path.
std::map<std::string, at::Tensor> inputs_of(const LayerRunner& runner, const at::Tensor& states) {
  std::map<std::string, at::Tensor> out;
  const models::Tap tap([&](const models::Linear& linear, const at::Tensor& input, const at::Tensor&) {
    out[linear.path()] = input.reshape({-1, input.size(-1)}).to(at::kDouble);
  });
  runner.forward(states);
  return out;
}

struct Kept final : StatesSink {
  at::Tensor states;
  void write(const at::Tensor& more) override { states = states.defined() ? at::cat({states, more}) : more; }
};

// A layer as it was, and with weights that are a little off, as rounding leaves them.
class Layers {
 public:
  explicit Layers(const std::string& model = "tiny-llama") : source_(files::open_checkpoint(tests::data(model))) {
    original.load(kLayer);
    quantized.load(kLayer);
    spoil("");
  }
  // Those whose paths contain this.
  void spoil(const std::string& part) {
    for (models::DenseLinear* linear : quantized.linears()) {
      if (linear->path().find(part) == std::string::npos) continue;
      at::Tensor weight = linear->weight();
      weight.mul_(1 + random(weight.sizes(), 7) * 0.05);
    }
  }

 private:
  files::Checkpoint source_;

 public:
  LayerRunner original{source_, DtypePolicy::float32()}, quantized{source_, DtypePolicy::float32()};
};

}  // namespace

TEST_CASE("paired pass: moments of what the quantised layer is given, and its drift from the original", "[gptaq]") {
  operators::register_operators();
  Layers layers;
  const at::Tensor states = random({kSequences, kTokens, layers.original.config().hidden_size}, 1);
  const at::Tensor drifted = states + random(states.sizes(), 2) * 0.1;
  const StatesInMemory given(states), given_quantized(drifted);
  Kept result;
  PairedPass pass(
      {layers.original, given}, {layers.quantized, given_quantized},
      [](const models::Linear& linear) { return linear.path().find("k_proj") == std::string::npos; }, at::kFloat,
      &result);
  const auto originals = inputs_of(layers.original, states);
  std::set<std::string> seen;
  std::size_t stages = 0;
  // Room for one sum: products that do not share their input come one by one, whatever the room.
  while (const std::optional<Moments> stage = pass.next_stage(1)) {
    const auto inputs = inputs_of(layers.quantized, drifted);
    ++stages;
    REQUIRE(stage->parts().size() == 1);
    const calibrate::Part& part = stage->parts().front();
    CHECK(part.tokens == kSequences * kTokens);
    for (const models::Linear* linear : part.linears) {
      CAPTURE(linear->path());
      const at::Tensor x = inputs.at(linear->path()), original = originals.at(linear->path());
      CHECK(off(part.moments().to(at::kDouble), x.t().mm(x)) < 1e-5);
      CHECK(off(part.drift.to(at::kDouble), (original - x).t().mm(x)) < 1e-4);
      CHECK(seen.insert(linear->path()).second);
    }
    layers.spoil(part.linears.front()->path());  // what comes behind is given other inputs from here on
  }
  CHECK(result.states.equal(layers.original.forward(states)));
  CHECK(stages == 4);
  CHECK(seen.size() == 6);
}

TEST_CASE("paired pass: all experts that the quantised layer chooses, whatever the original's chooses", "[gptaq]") {
  operators::register_operators();
  Layers layers("families/mixtral");
  const at::Tensor states = random({1, 1, layers.original.config().hidden_size}, 1);
  const at::Tensor drifted = random(states.sizes(), 2);
  const StatesInMemory given(states), given_quantized(drifted);
  Kept result;
  const auto is_wanted = [](const models::Linear& linear) { return linear.path().find("gate") == std::string::npos; };
  PairedPass pass({layers.original, given}, {layers.quantized, given_quantized}, is_wanted, at::kFloat, &result);
  const std::uint64_t room = GENERATE(1, 1 << 30);
  std::set<std::string> seen, wanted;
  while (const std::optional<Moments> stage = pass.next_stage(room)) {
    const auto inputs = inputs_of(layers.quantized, drifted);
    for (const calibrate::Part& part : stage->parts()) {
      const std::string& path = part.linears.front()->path();
      CAPTURE(path);
      const at::Tensor x = inputs.at(path);
      CHECK(off(part.moments().to(at::kDouble), x.t().mm(x)) < 1e-5);
      CHECK(part.drift.defined() == (path.find("experts") == std::string::npos));
      for (const models::Linear* linear : part.linears) CHECK(seen.insert(linear->path()).second);
    }
  }
  const auto originals = inputs_of(layers.original, states);
  for (const auto& [path, input] : inputs_of(layers.quantized, drifted))
    if (path.find("gate") == std::string::npos) wanted.insert(path);
  CHECK(seen == wanted);
  CHECK(std::ranges::any_of(originals, [&](const auto& each) {
    return each.first.find("experts") != std::string::npos && !wanted.contains(each.first);
  }));
  CHECK(pass.lacks_output());
  CHECK(!result.states.defined());
}

TEST_CASE("correction: between the weights and what comes nearest to the original's results", "[gptaq]") {
  constexpr std::int64_t kColumns = 96;
  const at::Tensor original = random({400, kColumns}, 3), x = original + random(original.sizes(), 4) * 0.3;
  const at::Tensor weights = random({700, kColumns}, 5), moments = x.t().mm(x);
  damp(moments);
  const at::Tensor drift = (original - x).t().mm(x);
  at::Tensor found = wanted_change(weights, drift);
  correct(weights, feedback_of(moments), found);
  const at::Tensor whole = at::linalg_solve(moments.to(at::kDouble), weights.mm(drift).to(at::kDouble), /*left=*/false);
  const at::Tensor change = (found - weights).to(at::kDouble);
  const double share = ((change * whole).sum() / whole.square().sum()).item<double>();
  CHECK(share > 0.3);
  CHECK(share < 1.0);
  CHECK(off(change, whole * share) < 1e-4);
  // The products come nearer to the original's.
  const auto lost = [&](const at::Tensor& matrix) { return off(x.mm(matrix.t()), original.mm(weights.t())); };
  CHECK(lost(found) < 0.9 * lost(weights));
}
