// What belongs to a layer: its rope, its window, and what of a session it keeps.
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <ATen/ATen.h>

#include <halfbyte/causal_lm.h>

#include "models/architectures/architecture.h"
#include "models/cpu/workspace.h"
#include "models/modules/decoder.h"
#include "models/sessions/session.h"
#include "tests/catch.h"
#include "tests/models/parse_config.h"
#include "tests/models/random_source.h"

namespace halfbyte::models {
namespace {

constexpr std::int64_t kTokens = 24;

std::shared_ptr<CausalLM> model_of(const ModelConfig& config) {
  tests::RandomSource source(config);
  return std::make_shared<CausalLM>(config, gather_weights(config, source), DtypePolicy::float32());
}

at::Tensor tokens_of(std::int64_t count, std::int64_t seed) {
  return at::arange(count, at::kLong).mul(37).add(seed).remainder(100).unsqueeze(0);
}

// In passes of 9, 1 and the others. With gradients on the modules run one by one.
at::Tensor logits_of(const ModelConfig& config, bool is_fused) {
  const c10::InferenceMode inference(is_fused);
  const at::AutoGradMode gradients(!is_fused);
  const auto model = model_of(config);
  Session session = model->make_session();
  const at::Tensor tokens = tokens_of(kTokens, 5);
  std::vector<at::Tensor> parts;
  for (const auto& [begin, count] : {std::pair(0, 9), std::pair(9, 1), std::pair(10, 14)})
    parts.push_back(model->head(model->hidden(tokens.narrow(1, begin, count), session)));
  CHECK(model->decoder().workspaces().passes() == (is_fused ? 3 : 0));
  return at::cat(parts, 1).detach();
}

double difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

ModelConfig llama() { return parse(config_of("llama")); }

RopeConfig local_rope() {
  RopeConfig rope = llama().ropes.at(0);
  rope.name = "local";
  rope.theta = 100.0;
  rope.rotary_dim = 8;
  return rope;
}

TEST_CASE("every layer turns by its own rope", "[layers]") {
  ModelConfig both = llama(), first = llama(), second = llama();
  both.ropes.push_back(local_rope());
  second.ropes = {local_rope()};
  const at::Tensor by_first = logits_of(first, true), by_second = logits_of(second, true);
  CHECK(difference(logits_of(both, true), by_first) == 0);  // a rope that no layer turns by
  for (LayerConfig& layer : both.layers) layer.rope = 1;
  CHECK(difference(logits_of(both, true), by_second) == 0);
  both.layers.at(2).rope = 0;
  const at::Tensor mixed = logits_of(both, true);
  CHECK(difference(mixed, by_first) > 1e-3);
  CHECK(difference(mixed, by_second) > 1e-3);
  CHECK(difference(mixed, logits_of(both, false)) < 1e-4);
}

TEST_CASE("a layer may turn by no rope at all", "[layers]") {
  ModelConfig config = llama(), still = llama();
  config.layers.at(1).rope = kNoRope;
  CHECK(difference(logits_of(config, true), logits_of(llama(), true)) > 1e-3);
  CHECK(difference(logits_of(config, true), logits_of(config, false)) < 1e-4);
  for (LayerConfig& layer : still.layers) layer.rope = kNoRope;
  // Without positions the last token sees a set: the order of those before it is nothing to it.
  const auto last = [&](const at::Tensor& tokens) {
    const c10::InferenceMode guard;
    const auto model = model_of(still);
    Session session = model->make_session();
    return model->hidden(tokens, session).select(1, -1).clone();
  };
  still.layers.resize(1);
  still.num_hidden_layers = 1;
  const at::Tensor tokens = tokens_of(6, 5);
  const at::Tensor swapped = at::cat({tokens.narrow(1, 0, 5).flip(1), tokens.narrow(1, 5, 1)}, 1);
  CHECK(difference(last(tokens), last(swapped)) < 1e-5);
}

TEST_CASE("the buffers of several ropes have names of their own", "[layers]") {
  ModelConfig config = llama();
  config.ropes.push_back(local_rope());
  const auto derived = Architecture::derived(config);
  REQUIRE(derived.size() == 2);
  CHECK(derived[0].name == "model.rotary_emb.inv_freq");
  CHECK(derived[1].name == "model.rotary_emb.local.inv_freq");
  const auto buffers = model_of(config)->named_buffers();
  for (const DerivedBuffer& buffer : derived) CHECK(buffers.contains(buffer.name));
  CHECK(buffers["model.rotary_emb.local.inv_freq"].numel() == 4);
}

TEST_CASE("every layer has its own window", "[layers]") {
  ModelConfig config = llama();
  const at::Tensor all = logits_of(config, true);
  config.layers.at(1).window = 4;
  const at::Tensor one = logits_of(config, true);
  config.layers.at(3).window = 7;
  const at::Tensor two = logits_of(config, true);
  CHECK(difference(all, one) > 1e-3);
  CHECK(difference(one, two) > 1e-3);
  CHECK(difference(two, logits_of(config, false)) < 1e-4);
  CHECK(difference(all.narrow(1, 0, 4), two.narrow(1, 0, 4)) < 1e-6);  // nothing is out of sight yet
  for (LayerConfig& layer : config.layers) layer.window = kTokens;
  CHECK(difference(logits_of(config, true), all) == 0);
}

TEST_CASE("a fork of a session computes as if nothing had come after", "[layers]") {
  const c10::InferenceMode guard;
  const auto model = model_of(llama());
  Session session = model->make_session();
  model->hidden(tokens_of(8, 1), session);
  const Session prompt = session.fork();
  const at::Tensor first = model->hidden(tokens_of(6, 2), session).clone();
  Session other = prompt.fork();
  model->hidden(tokens_of(6, 3), other);
  session = prompt.fork();
  CHECK(difference(model->hidden(tokens_of(6, 2), session), first) == 0);
}

TEST_CASE("a step refuses rows that are not its ids', and a session twice", "[layers]") {
  const c10::InferenceMode guard;
  const auto model = model_of(llama());
  Session one = model->make_session(), other = model->make_session();
  const at::Tensor ids = tokens_of(5, 1).view(-1);
  const auto refused = [&](const std::vector<StepRow>& rows) {
    CHECK_THROWS_WITH(model->step(ids, rows), Catch::Contains("one token at least for each of its sessions"));
    CHECK(one.length() + other.length() == 0);
  };
  refused({});
  refused({{&one, 4}});
  refused({{&one, 5}, {&other, 0}});
  refused({{&one, 2}, {&one, 3}});
  CHECK_NOTHROW(model->step(ids, std::vector<StepRow>{{&one, 2}, {&other, 3}}));
}

}  // namespace
}  // namespace halfbyte::models
