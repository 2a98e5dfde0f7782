// A tap is shown every product of a pass, changes none, and looks at its own thread alone.
#include "tests/catch.h"

#include <map>
#include <string>
#include <thread>

#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/low_bit_linear.h>

#include "models/modules/tap.h"
#include "models/sessions/session.h"
#include "tests/loader/files/scratch.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using models::Linear;
using models::Tap;

struct Seen {
  std::int64_t products = 0, tokens = 0;
  double largest_difference = 0;  // of a result from the product done again
};
using SeenByName = std::map<std::string, Seen>;

at::Tensor logits_of(const Model& model) {
  const c10::InferenceMode inference;
  models::Session session = model.module().make_session();
  const at::Tensor tokens = at::tensor({std::int64_t{1}, std::int64_t{300}, std::int64_t{301}}).unsqueeze(0);
  return model.module().head(model.module().hidden(tokens, session));
}

SeenByName seen_in(const Model& model, at::Tensor& logits) {
  const bool was_there = Tap::is_there();
  SeenByName seen;
  {
    const Tap tap([&](const Linear& linear, const at::Tensor& input, const at::Tensor& result) {
      CHECK(input.size(-1) == linear.in_features());
      CHECK(result.size(-1) == linear.out_features());
      Seen& of = seen[linear.path()];
      ++of.products;
      of.tokens += input.numel() / input.size(-1);
      const Tap none([](const Linear&, const at::Tensor&, const at::Tensor&) {});
      of.largest_difference = (linear.multiply(input, result.scalar_type()) - result).abs().max().item<double>();
    });
    CHECK(Tap::is_there());
    std::thread([] { CHECK_FALSE(Tap::is_there()); }).join();
    logits = logits_of(model);
  }
  CHECK(Tap::is_there() == was_there);
  return seen;
}

TEST_CASE("a tap is shown every product of a pass, packed and dense", "[tap]") {
  const testing::Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "packed");
  for (const auto& path : {tests::data("tiny-llama"), scratch / "packed"}) {
    INFO(path);
    const Model model = load_low_bit(path, {.dtype = DtypePolicy::float32()});
    const at::Tensor plain = logits_of(model);
    at::Tensor logits;
    const SeenByName seen = seen_in(model, logits);
    CHECK((logits - plain).abs().max().item<double>() < 1e-4);
    std::size_t linears = 0;
    for (const auto& item : model.module().named_modules()) {
      if (!dynamic_cast<const Linear*>(item.value().get())) continue;
      ++linears;
      INFO(item.key());
      REQUIRE(seen.contains(item.key()));
      CHECK(seen.at(item.key()).products == 1);
      CHECK(seen.at(item.key()).tokens == 3);
      CHECK(seen.at(item.key()).largest_difference == 0);
    }
    CHECK(linears == seen.size());
  }
}

TEST_CASE("the innermost tap is asked, and a mixture's experts show the tokens that chose them", "[tap]") {
  const Model model = load_low_bit(tests::data("families/mixtral"), {.dtype = DtypePolicy::float32()});
  std::int64_t outer_products = 0;
  const Tap outer([&](const Linear&, const at::Tensor&, const at::Tensor&) { ++outer_products; });
  at::Tensor logits;
  const SeenByName seen = seen_in(model, logits);
  CHECK(outer_products == 0);
  std::map<std::string, std::int64_t> tokens_of_kind;
  for (const auto& [name, of] : seen) {
    if (name.find(".experts.") != std::string::npos) tokens_of_kind[name.substr(name.rfind('.'))] += of.tokens;
  }
  REQUIRE(tokens_of_kind.size() == 3);
  for (const auto& [kind, tokens] : tokens_of_kind) CHECK(tokens == tokens_of_kind.begin()->second);
}

}  // namespace
}  // namespace halfbyte
