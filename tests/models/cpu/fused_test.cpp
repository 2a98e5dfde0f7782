// The fused CPU pass against the modules run one by one, and what a token allocates.
#include "tests/catch.h"

#include <atomic>
#include <cstdlib>
#include <new>

#include <ATen/autocast_mode.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/profile.h>

#include "models/architectures/model_config.h"
#include "models/cpu/workspace.h"
#include "models/modules/decoder.h"
#include "models/sessions/session.h"
#include "tests/models/reference.h"
#include "tests/places.h"

namespace {

std::atomic<std::int64_t> news = 0;

void* counted_or_null(std::size_t size) noexcept {
  ++news;
  return std::malloc(size ? size : 1);
}

void* counted(std::size_t size) {
  if (void* memory = counted_or_null(size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Of the whole test program; LibTorch's own calls come here too. All that give what the deletes below free: a sanitizer
// has each on its own.
void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted_or_null(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return counted_or_null(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace halfbyte {
namespace {

using models::CausalLM;
using models::Session;
using models::StepRow;

constexpr const char* kModels[] = {"families/llama2",
                                   "families/llama31-rope",
                                   "families/llama-yarn",
                                   "families/mistral-sw",
                                   "families/qwen2",
                                   "families/qwen3",
                                   "families/phi3",
                                   "families/gemma2",
                                   "families/glm4-9b",
                                   "families/chatglm2",
                                   "families/mixtral",
                                   "families/olmo2",
                                   "families/seed-oss",
                                   "families/ernie4.5",
                                   "families/hunyuan-dense",
                                   "families/granite",
                                   "families/smollm3",
                                   "families/exaone4",
                                   "families/olmo3",
                                   "families/cohere2",
                                   "families/minimax-m2",
                                   "families/phimoe",
                                   "families/glm4-moe",
                                   "families/ministral3",
                                   "families/gemma3",
                                   "families/granitemoe",
                                   "families/lfm2",
                                   "families/qwen3-next",
                                   "families/qwen3.5",
                                   "families/qwen3.5-moe",
                                   "families/deepseek-v2-lite",
                                   "families/deepseek-v3",
                                   "families/gpt-oss",
                                   "families/llama4",
                                   "families/gemma4",
                                   "families/gemma4-moe",
                                   "families/gemma4-ple",
                                   "tiny-llama"};

at::Tensor token_ids(const CausalLM& model, std::int64_t rows, std::int64_t tokens, std::int64_t seed) {
  const at::Tensor ids = at::arange(rows * tokens, at::kLong).mul(7919).add(seed * 31);
  return ids.remainder(model.config().vocab_size).view({rows, tokens});
}

std::int64_t fused_passes(const CausalLM& model) { return model.decoder().workspaces().passes(); }

// Two rows of different lengths read one by one, then decoded together, then two rows of several tokens. With gradients
// on the modules run one by one.
std::vector<at::Tensor> logits_of(const CausalLM& model, bool is_generic) {
  const c10::InferenceMode inference(!is_generic);
  const at::AutoGradMode gradients(is_generic);
  const std::int64_t before = fused_passes(model);
  std::vector<Session> sessions = model.make_sessions(2);
  std::vector<at::Tensor> out;
  const auto read = [&](std::int64_t tokens, std::int64_t seed, std::size_t first, std::size_t rows) {
    const at::Tensor ids = token_ids(model, static_cast<std::int64_t>(rows), tokens, seed);
    out.push_back(model.head(model.hidden(ids, std::span(sessions).subspan(first, rows))));
  };
  read(23, 1, 0, 1);
  read(6, 2, 1, 1);
  for (std::int64_t step = 0; step < 4; ++step) read(1, 3 + step, 0, 2);
  read(1, 8, 1, 1);
  read(5, 9, 0, 2);
  // Of different counts, beyond the first block of keys.
  const StepRow rows[] = {{&sessions[0], 40}, {&sessions[1], 1}};
  out.push_back(model.head(model.step(token_ids(model, 1, 41, 10).view(-1), rows)));
  CHECK(fused_passes(model) - before == (is_generic ? 0 : 9));
  CHECK(sessions[0].length() == 72);
  CHECK(sessions[1].length() == 17);
  return out;
}

struct Bound {
  const char* policy;
  double logits;  // largest difference, relative to the largest logit
};

// In 16 bits, routers choose other experts where two are nearly alike, so that only float32 tells anything of those.
bool is_comparable(const CausalLM& model) {
  return model.config().moe.num_experts == 0 || model.policy() == DtypePolicy::float32();
}

void check_alike(const CausalLM& model, double bound) {
  const auto fused = logits_of(model, false), generic = logits_of(model, true);
  for (std::size_t pass = 0; pass < fused.size(); ++pass) {
    const double difference = (fused[pass] - generic[pass]).abs().max().item<double>();
    INFO("pass " << pass);
    if (is_comparable(model)) CHECK(difference / generic[pass].abs().max().item<double>() < bound);
  }
}

// Roundings to the operands' dtype fall otherwise where sums were made in another order.
// Measured: 9.6e-3, 7.3e-4, 9.1e-7.
constexpr Bound kBounds[] = {{"amp:bfloat16", 2e-2}, {"amp:float16", 2.5e-3}, {"float32", 1e-5}};

TEST_CASE("the fused pass gives what the modules give, in every family and policy", "[fused]") {
  for (const char* name : kModels) {
    for (const Bound& bound : kBounds) {
      const Model model = load_low_bit(tests::data(name), {.dtype = DtypePolicy::parse(bound.policy)});
      INFO(name << " " << bound.policy);
      check_alike(model.module(), bound.logits);
    }
  }
}

TEST_CASE("the fused pass gives what the modules give with packed weights", "[fused]") {
  const tests::Scratch scratch;
  for (const char* name : {"families/phi3", "families/qwen2", "families/mixtral", "families/glm4-moe", "tiny-llama"}) {
    const auto packed = scratch / ("packed-" + std::filesystem::path(name).filename().string());
    convert::quantize(tests::data(name), packed, {.scheme = "sym_int4", .group_size = 32});
    for (const Bound& bound : kBounds) {
      INFO(name << " " << bound.policy);
      const LoadOptions options{.dtype = DtypePolicy::parse(bound.policy), .compute = ComputeMode::kFloat};
      check_alike(load_low_bit(packed, options).module(), bound.logits);
    }
  }
}

// The queries', keys' and values' columns are in one order, as a GPTQ model with desc_act has them, all others each in
// its own.
void reorder(CausalLM& model) {
  std::uint64_t seed = 1;
  at::Tensor shared;
  for (const auto& item : model.named_modules()) {
    auto* linear = dynamic_cast<LowBitLinear*>(item.value().get());
    if (!linear) continue;
    const std::string name = item.key().substr(item.key().rfind('.') + 1);
    LowBitTensor weight = linear->weight();
    const bool is_shared = name == "k_proj" || name == "v_proj";
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed++);
    const at::Tensor own = at::randperm(weight.in_features, generator, at::kLong);
    weight.column_order = is_shared ? shared.clone() : own;
    if (name == "q_proj") shared = own;
    linear->set_weight(weight);
  }
}

TEST_CASE("the fused pass takes weights whose columns are in an order of their own", "[fused]") {
  const tests::Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "packed", {.scheme = "asym_int4", .group_size = 32});
  for (const Bound& bound : kBounds) {
    INFO(bound.policy);
    const Model model =
        load_low_bit(scratch / "packed", {.dtype = DtypePolicy::parse(bound.policy), .compute = ComputeMode::kFloat});
    const auto before = logits_of(model.module(), false);
    reorder(model.module());
    check_alike(model.module(), bound.logits);
    CHECK((logits_of(model.module(), false)[0] - before[0]).abs().max().item<double>() > 0.1);
  }
}

TEST_CASE("what the fused pass does not take runs module by module", "[fused]") {
  const auto is_fused = [](const LoadOptions& options) {
    const Model model = load_low_bit(tests::data("tiny-llama"), options);
    const c10::InferenceMode guard;
    Session session = model.module().make_session();
    model.module().hidden(token_ids(model.module(), 1, 2, 0), session);
    return fused_passes(model.module()) == 1;
  };
  CHECK(is_fused({}));
  CHECK(is_fused({.overrides = {{"*down_proj", DtypePolicy::float32()}}}));
  CHECK_FALSE(is_fused({.dtype = DtypePolicy::half()}));
  CHECK_FALSE(is_fused({.dtype = DtypePolicy::original()}));
  CHECK_FALSE(is_fused({.overrides = {{"*q_proj", DtypePolicy::float32()}}}));  // shares its input
  at::autocast::set_autocast_enabled(at::kCPU, true);
  CHECK_FALSE(is_fused({}));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(is_fused({}));
}

// LibTorch's allocator for tensors' memory, with a count.
class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}
  at::DataPtr allocate(std::size_t size) override {
    ++count;
    return inner_->allocate(size);
  }
  at::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t size) const override { inner_->copy_data(to, from, size); }
  std::int64_t count = 0;

 private:
  c10::Allocator* inner_;
};

TEST_CASE("a token allocates the tensors it gives back and nothing that grows with the model", "[fused]") {
  const Model model = load_low_bit(tests::data("tiny-llama"));
  const c10::InferenceMode guard;
  Session session = model.module().make_session();
  const StepRow row[] = {{&session, 1}};
  const at::Tensor token = token_ids(model.module(), 1, 1, 5).view(-1);
  model.module().hidden(token_ids(model.module(), 1, 8, 4), session);
  for (int i = 0; i < 2; ++i) model.module().step(token, row);
  CountingAllocator tensors(c10::GetCPUAllocator());
  c10::SetCPUAllocator(&tensors, 200);
  const std::int64_t before = news;
  constexpr int kTokens = 10;
  for (int i = 0; i < kTokens; ++i) model.module().step(token, row);
  const std::int64_t made = news - before;
  const std::int64_t tensor_memory = tensors.count;
  c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), 201);
  CHECK(tensor_memory == kTokens);  // the hidden state
  CHECK(made <= 2 * kTokens);       // that tensor's own two objects
  const Profile profile({.traced_passes = kTokens});
  const std::int64_t before_profiled = news;
  for (int i = 0; i < kTokens; ++i) model.module().step(token, row);
  const std::int64_t made_profiled = news - before_profiled;
  CHECK(made_profiled <= 2 * kTokens);  // no more where a profile keeps events
  CHECK(profile.record().events.size() > kTokens);
}

}  // namespace
}  // namespace halfbyte
