// Profiles of real passes: which kinds of work each family has, what products come to, and that nothing else changes.
#include <halfbyte/profile.h>

#include <map>
#include <set>
#include <string>
#include <thread>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "models/architectures/model_config.h"
#include "models/profile/recorder.h"
#include "models/sessions/session.h"
#include "tests/catch.h"
#include "tests/models/profile/trace_rows.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

const WorkTotals& of(const ProfileRecord& record, WorkKind kind) {
  return record.work.at(static_cast<std::size_t>(kind));
}

at::Tensor some_tokens(const Model& model, std::int64_t count) {
  return at::arange(count, at::kLong).mul(7919).remainder(model.config().vocab_size).view({1, count});
}

// A prompt of nine tokens and two more, with their logits.
at::Tensor run_passes(const Model& model) {
  const c10::InferenceMode guard;
  const models::CausalLM& module = model.module();
  std::vector<models::Session> sessions = module.make_sessions(1);
  std::vector<at::Tensor> out;
  for (const std::int64_t tokens : {9, 1, 1})
    out.push_back(module.head(module.hidden(some_tokens(model, tokens), sessions)));
  return at::cat(out, 1);
}

ProfileRecord profile_of(const Model& model, const ProfileOptions& options = {}) {
  const Profile profile(options);
  run_passes(model);
  return profile.record();
}

using Names = std::set<std::string>;

Names kinds_in(const ProfileRecord& record) {
  Names out;
  for (const WorkTotals& work : record.work) {
    if (work.calls > 0) out.emplace(name(work.kind));
  }
  return out;
}

// What passes through the fused kernels have in common.
const Names kAlways = {"embedding", "norms", "head"};
const Names kAttention = {"qkv", "place_heads", "attention", "attention_output"};
const Names kMlp = {"gate_up", "gates", "down"};
const Names kExperts = {"router", "expert_rows", "experts", "gates"};
const Names kModules = {"modules", "module_products"};

struct Row {
  const char* model;
  std::vector<Names> kinds;
  DtypePolicy policy = DtypePolicy::float32();
};

TEST_CASE("a profile has every kind of work that a family has, and no other", "[profile]") {
  const Row rows[] = {
      {"tiny-llama", {kAlways, kAttention, kMlp}},
      {"families/phi3", {kAlways, kAttention, kMlp}},
      {"families/cohere2", {kAlways, kAttention, kMlp}},
      {"families/mixtral", {kAlways, kAttention, kExperts}},
      {"families/deepseek-v3", {kAlways, kModules, kMlp, kExperts}},
      {"families/gpt-oss", {kAlways, kAttention, kModules}},
      {"families/lfm2", {kAlways, kAttention, kModules, kMlp}},
      {"families/qwen3-next", {kAlways, kAttention, kModules, kExperts}},
      {"families/qwen3.5", {kAlways, kAttention, kModules, kMlp}},
      {"families/gemma4-ple", {kAlways, kAttention, kModules, kMlp}},
      {"tiny-llama", {{"head"}, kModules}, DtypePolicy::half()},
  };
  for (const Row& row : rows) {
    INFO(row.model << " " << row.policy.name());
    Names wanted;
    for (const Names& kinds : row.kinds) wanted.insert(kinds.begin(), kinds.end());
    CHECK(kinds_in(profile_of(load_low_bit(tests::data(row.model), {.dtype = row.policy}))) == wanted);
  }
}

TEST_CASE("the kinds' times are parts of the whole", "[profile]") {
  for (const char* name : {"tiny-llama", "families/mixtral", "families/qwen3-next"}) {
    INFO(name);
    const ProfileRecord record = profile_of(load_low_bit(tests::data(name)));
    CHECK(record.passes == 3);
    CHECK(record.tokens == 11);
    double sum = 0;
    for (const WorkTotals& work : record.work) {
      CHECK(work.seconds >= 0);
      CHECK(work.shared_seconds <= work.seconds * (1 + 1e-9));
      CHECK(work.coming_seconds + work.waiting_seconds <= record.threads * work.shared_seconds);
      sum += work.seconds;
    }
    CHECK(sum == Approx(record.seconds).epsilon(1e-9));
  }
}

// Beside packed codes: what the shape was, which products do not read.
constexpr std::int64_t kShapeBytes = 2 * sizeof(std::int64_t);

// Of each weight in the kinds' products.
std::int64_t bytes_of(const Model& model, const std::vector<std::string>& endings) {
  std::int64_t out = 0;
  for (const LoadedTensor& tensor : model.report().tensors) {
    for (const std::string& ending : endings) {
      if (!tensor.name.ends_with(ending + ".weight")) continue;
      const bool is_packed = tensor.loaded.starts_with("asym_int4");
      out += static_cast<std::int64_t>(tensor.bytes) - (is_packed ? kShapeBytes : 0);
    }
  }
  return out;
}

TEST_CASE("products count what they read and compute", "[profile]") {
  const tests::Scratch scratch;
  const Model model = [&] {
    convert::quantize(tests::data("tiny-llama"), scratch / "packed", {.scheme = "asym_int4", .group_size = 32});
    return load_low_bit(scratch / "packed");
  }();
  const ProfileRecord record = profile_of(model);
  const models::ModelConfig& config = model.config();
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  const struct {
    WorkKind kind;
    std::int64_t calls;
    std::vector<std::string> weights;
  } rows[] = {{WorkKind::kQkv, 3 * layers, {"q_proj", "k_proj", "v_proj"}},
              {WorkKind::kAttentionOutput, 3 * layers, {"o_proj"}},
              {WorkKind::kGateUp, 3 * layers, {"gate_proj", "up_proj"}},
              {WorkKind::kDown, 3 * layers, {"down_proj"}},
              {WorkKind::kHead, 3, {"lm_head"}}};
  for (const auto& row : rows) {
    INFO(name(row.kind));
    CHECK(of(record, row.kind).calls == row.calls);
    CHECK(of(record, row.kind).bytes == 3 * bytes_of(model, row.weights));
  }
  const std::int64_t head_dim = config.head_dim_of(config.layers[0]), hidden = config.hidden_size;
  const std::int64_t heads = config.num_attention_heads * head_dim;
  CHECK(of(record, WorkKind::kAttentionOutput).flop == 2 * 11 * heads * hidden * layers);
  CHECK(of(record, WorkKind::kHead).flop == 2 * 11 * hidden * config.vocab_size);
  CHECK(of(record, WorkKind::kAttention).flop == 4 * heads * layers * (45 + 10 + 11));
  const std::int64_t value_bytes = 2, keys = config.num_key_value_heads * head_dim;
  CHECK(of(record, WorkKind::kAttention).bytes == 2 * keys * value_bytes * layers * (9 + 10 + 11));
}

TEST_CASE("attention counts what a window leaves to be seen", "[profile]") {
  const Model model = load_low_bit(tests::data("families/mistral-sw"), {.dtype = DtypePolicy::float32()});
  const std::int64_t window = model.config().layers[0].window;
  REQUIRE(window > 0);
  const c10::InferenceMode guard;
  std::vector<models::Session> sessions = model.module().make_sessions(1);
  const Profile profile;
  model.module().hidden(some_tokens(model, 3 * window), sessions);
  const models::ModelConfig& config = model.config();
  const std::int64_t pairs = window * (window + 1) / 2 + 2 * window * window;
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  CHECK(of(profile.record(), WorkKind::kAttention).flop ==
        4 * config.num_attention_heads * config.head_dim_of(config.layers[0]) * layers * pairs);
}

TEST_CASE("a trace has a pass's layers and their work, nested in time, a thread a row", "[profile]") {
  for (const char* name : {"tiny-llama", "families/qwen3-next"}) {
    INFO(name);
    const Model model = load_low_bit(tests::data(name));
    const ProfileRecord records[] = {profile_of(model, {.traced_passes = 2})};
    CHECK(records[0].lost_events == 0);
    std::map<int, std::multiset<std::string>> names;
    for (const auto& [thread, events] : tests::trace_rows(chrome_trace(records))) {
      CHECK(tests::are_nested(events));
      for (const auto& event : events) names[thread].insert(event.at("name").get<std::string>());
    }
    CHECK(names[0].count("pass") == 2);
    CHECK(names[0].count("head") == 2);
    for (std::size_t layer = 0; layer < model.config().layers.size(); ++layer)
      CHECK(names[0].count("layers." + std::to_string(layer)) == 2);
    // Other threads have shares alone: of the calls that they came to in time.
    for (const auto& [thread, events] : names) {
      CHECK((thread == 0 || events.count("pass") == 0));
      for (const std::string& event : events) CHECK(names[0].contains(event));
    }
  }
}

TEST_CASE("generate() is recorded with the choice of its tokens", "[profile]") {
  const Model model = load_low_bit(tests::data("tiny-llama"));
  const Profile profile;
  model.generate({{1, 300, 400}}, {.max_gen_len = 5, .temperature = 0, .ignore_eos = true});
  const ProfileRecord record = profile.record();
  CHECK(of(record, WorkKind::kSampling).calls == 5);
  CHECK(record.passes >= 5);
}

TEST_CASE("a profile changes no value, and sees no other thread's passes", "[profile]") {
  for (const char* name : {"tiny-llama", "families/mixtral", "families/lfm2"}) {
    INFO(name);
    const Model model = load_low_bit(tests::data(name));
    const at::Tensor plain = run_passes(model);
    const Profile profile({.traced_passes = 3});
    CHECK(at::equal(run_passes(model), plain));
    const std::int64_t passes = profile.record().passes;
    std::jthread([&] { run_passes(model); }).join();
    CHECK(profile.record().passes == passes);
  }
}

TEST_CASE("a pass that is refused leaves the profile whole", "[profile]") {
  const Model model = load_low_bit(tests::data("tiny-llama"));
  const Profile profile;
  const c10::InferenceMode guard;
  std::vector<models::Session> sessions = model.module().make_sessions(1);
  CHECK_THROWS(model.module().hidden(at::full({1, 2}, model.config().vocab_size, at::kLong), sessions));
  run_passes(model);
  const ProfileRecord record = profile.record();
  CHECK(of(record, WorkKind::kHead).calls == 3);
  CHECK(of(record, WorkKind::kOther).seconds >= 0);
  CHECK(models::Recorder::of_this_thread()->current() == WorkKind::kOther);
}

}  // namespace
}  // namespace halfbyte
