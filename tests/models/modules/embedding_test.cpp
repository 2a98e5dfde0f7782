// Packed embeddings: the rows that tokens ask for are those of the whole matrix dequantised, in the modules, in the
// fused pass and where the head is tied to them.
#include "models/modules/embedding.h"

#include <cmath>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/load_state.h>

#include "loader/checkpoint_source.h"
#include "models/architectures/model_config.h"
#include "models/cpu/workspace.h"
#include "models/modules/decoder.h"
#include "quant/operators/implementations.h"
#include "tests/catch.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using models::CausalLM;
using models::Session;
using models::StepRow;

constexpr const char* kName = "model.embed_tokens.weight";

// Its embedding packed, and the rest as it was.
std::filesystem::path packed(const tests::Scratch& scratch, const std::string& model, const std::string& scheme,
                             std::int64_t group_size = 32) {
  const std::filesystem::path out = scratch / (std::filesystem::path(model).filename().string() + scheme);
  convert::quantize(tests::data(model), out,
                    {.group_size = scheme == "hb4_fine" ? 16 : group_size,
                     .halfbyte_only = true,
                     .keep = {"*layers*"},
                     .embedding = scheme,
                     .overwrite = true});
  return out;
}

// A checkpoint's tensors, its embeddings packed or dequantised.
class Source final : public CheckpointSource {
 public:
  Source(const files::Checkpoint& checkpoint, const LoadOptions& options, LoadReport& report, bool is_dense)
      : CheckpointSource(checkpoint, options, report), is_dense_(is_dense) {}
  models::LinearWeights embedding(const std::string& module) override {
    models::LinearWeights out = CheckpointSource::embedding(module);
    if (is_dense_) return {dense(module + ".weight"), std::nullopt};
    auto& weight = std::get<LowBitTensor>(out.weight);
    if (is_damaged) weight.scales = at::full_like(weight.scales, std::nan(""));
    return out;
  }
  bool is_damaged = false;

 private:
  bool is_dense_;
};

std::shared_ptr<CausalLM> load(const std::filesystem::path& path, const DtypePolicy& policy, bool is_dense,
                               bool is_damaged = false) {
  const files::Checkpoint checkpoint = files::open_checkpoint(path);
  LoadReport report;
  const LoadOptions options{.dtype = policy};
  Source source(checkpoint, options, report, is_dense);
  source.is_damaged = is_damaged;
  const models::ModelConfig config = checkpoint.model_config();
  return std::make_shared<CausalLM>(config, models::gather_weights(config, source), policy);
}

at::Tensor ids_of(const CausalLM& model, std::int64_t count) {
  return at::arange(count, at::kLong).mul(7919).add(13).remainder(model.config().vocab_size);
}

// Hidden states of two sequences read one by one, then together.
std::vector<at::Tensor> hidden_of(const CausalLM& model, bool is_generic) {
  const c10::InferenceMode inference(!is_generic);
  const at::AutoGradMode gradients(is_generic);
  std::vector<Session> sessions = model.make_sessions(2);
  std::vector<at::Tensor> out;
  for (Session& session : sessions) out.push_back(model.hidden(ids_of(model, 19).view({1, 19}), session));
  const StepRow rows[] = {{&sessions[0], 12}, {&sessions[1], 1}};
  out.push_back(model.step(ids_of(model, 13), rows));
  Session fork = sessions[0].fork();
  out.push_back(model.hidden(ids_of(model, 1).view({1, 1}), fork));
  return out;
}

bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

TEST_CASE("rows of a packed matrix are those of the matrix dequantised, whatever the scheme and the backend",
          "[embedding]") {
  const tests::Scratch scratch;
  for (const Scheme& scheme : schemes()) {
    INFO(scheme.name);
    const State state = load_state(packed(scratch, "families/llama31-rope", std::string(scheme.name)));
    const LowBitTensor& weight = state.at(kName).low_bit();
    for (const std::int64_t count : {1, 7, 8, 43}) {
      const at::Tensor ids = at::arange(count, at::kLong).mul(61).add(5).remainder(weight.out_features());
      const LowBitTensor rows = weight.rows(ids);
      for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
        const at::Tensor wanted = weight.dequantize(type).index_select(0, ids);
        CHECK(at::equal(rows.dequantize(type), wanted));
        CHECK(at::equal(operators::composite::dequantize(rows.packed(), rows.in_features, type), wanted));
      }
    }
    CHECK_THROWS(weight.rows(at::full({1}, weight.out_features(), at::kLong)));
  }
}

TEST_CASE("a packed embedding gives what it gives dequantised, to the bit in float32", "[embedding]") {
  const tests::Scratch scratch;
  for (const char* model : {"families/llama2", "families/gemma2", "families/gemma4-ple"}) {
    for (const Scheme& scheme : schemes()) {
      INFO(model << " " << scheme.name);
      const auto path = packed(scratch, model, std::string(scheme.name));
      const auto found = load(path, DtypePolicy::float32(), false), wanted = load(path, DtypePolicy::float32(), true);
      REQUIRE(found->decoder().embedding().packed());
      REQUIRE_FALSE(wanted->decoder().embedding().packed());
      CHECK(found->named_parameters().size() < wanted->named_parameters().size());
      CHECK(are_equal(hidden_of(*found, false), hidden_of(*wanted, false)));
      CHECK(found->decoder().workspaces().passes() == 4);
      CHECK(are_equal(hidden_of(*found, true), hidden_of(*wanted, true)));
      CHECK(found->decoder().workspaces().passes() == 4);
      // The head of some is tied to it, and then multiplies codes.
      const at::Tensor a = found->forward(ids_of(*found, 9).view({1, 9}));
      const at::Tensor b = wanted->forward(ids_of(*found, 9).view({1, 9}));
      const bool is_tied = found->config().tie_word_embeddings;
      CHECK((is_tied ? (a - b).abs().max().item<double>() <= 1e-5 * b.abs().max().item<double>() : at::equal(a, b)));
    }
  }
}

TEST_CASE("a tied head multiplies the embedding's own codes", "[embedding]") {
  const tests::Scratch scratch;
  const auto directory = tests::data("families/llama31-rope");
  convert::quantize(directory, scratch / "e", {.halfbyte_only = true, .embedding = "sym_int8"});
  convert::quantize(directory, scratch / "h", {.halfbyte_only = true, .head = "sym_int8"});
  const Model model = load_low_bit(scratch / "e"), other = load_low_bit(scratch / "h");
  const auto head = std::dynamic_pointer_cast<LowBitLinear>(model.module().named_modules()["lm_head"]);
  const LowBitTensor* const embedding = model.module().decoder().embedding().packed();
  REQUIRE(head);
  REQUIRE(embedding);
  CHECK(head->weight().codes.const_data_ptr() == embedding->codes.const_data_ptr());
  CHECK(head->weight().scales.const_data_ptr() == embedding->scales.const_data_ptr());
  CHECK(std::ranges::count(model.report().tensors, "tied to model.embed_tokens.weight", &LoadedTensor::note) == 1);
  const GenerateOptions options{.max_gen_len = 8, .temperature = 0};
  CHECK(model.generate({{1, 5, 9}}, options).at(0).tokens == other.generate({{1, 5, 9}}, options).at(0).tokens);
}

TEST_CASE("packed rows have the stream's dtype, or else the matrix's before quantisation", "[embedding]") {
  const tests::Scratch scratch;
  const auto path = packed(scratch, "tiny-llama", "asym_int4");
  struct Row {
    const char* policy;
    at::ScalarType type;
  };
  for (const Row& row : {Row{"amp:bfloat16", at::kFloat}, Row{"float32", at::kFloat}, Row{"half", at::kHalf},
                         Row{"bfloat16", at::kBFloat16}, Row{"original", at::kBFloat16}}) {
    INFO(row.policy);
    const Model model = load_low_bit(path, {.dtype = DtypePolicy::parse(row.policy)});
    const at::Tensor ids = ids_of(model.module(), 6).view({2, 3});
    const models::Embedding& embedding = model.module().decoder().embedding();
    const at::Tensor rows = embedding.forward(ids);
    CHECK(rows.scalar_type() == row.type);
    const at::Tensor wanted = embedding.packed()->dequantize(row.type).index_select(0, ids.view(-1));
    CHECK(at::equal(rows.view({6, -1}), wanted));
  }
  const Model model = load_low_bit(path, {.dtype = DtypePolicy::original(), .keep_float32 = {"*embed*"}});
  CHECK(model.module().decoder().embedding().forward(at::zeros({1, 1}, at::kLong)).scalar_type() == at::kFloat);
}

TEST_CASE("a packed embedding goes where its model goes, and one that was left behind is named", "[embedding]") {
  const tests::Scratch scratch;
  const auto path = packed(scratch, "tiny-llama", "sym_int8");
  const Model model = load_low_bit(path);
  model.module().to(at::kDouble);
  CHECK(model.module().decoder().embedding().packed()->codes.scalar_type() == at::kInt);
  model.module().named_modules()["model.embed_tokens"]->to(at::kMeta);
  CHECK_THROWS_WITH(model.module().check_contract(),
                    Catch::Contains("model.embed_tokens: weight is on meta, the head is on cpu"));
  const Model moved = load_low_bit(path, {.device = Device::parse("meta")});
  CHECK(moved.module().decoder().embedding().packed()->device().is_meta());
}

TEST_CASE("scales of a packed embedding that are damaged are named", "[embedding]") {
  const tests::Scratch scratch;
  const auto model = load(packed(scratch, "tiny-llama", "sym_int8"), DtypePolicy::float32(), false, true);
  const c10::InferenceMode guard;
  CHECK_THROWS_WITH(model->forward(ids_of(*model, 3).view({1, 3})),
                    Catch::Contains("the scales of model.embed_tokens.weight holds"));
}

}  // namespace
}  // namespace halfbyte
