// What of a document depends on where in it a token is, also where it shares a sequence or is padded; and sequences
// that are none.
#include "tests/catch.h"

#include "models/architectures/architecture.h"
#include "models/training/documents.h"
#include "tests/models/parse_config.h"
#include "tests/models/random_source.h"
#include "tests/models/training/trained_family.h"

namespace halfbyte {
namespace {

using models::CausalLM;
using models::ModelConfig;
using tests::Rows;
using training::Sequence;

constexpr std::int64_t kVocab = 100;

std::shared_ptr<CausalLM> model_of(const ModelConfig& config, KeyValues key_values = KeyValues::kOperand) {
  tests::RandomSource source(config);
  return std::make_shared<CausalLM>(config, gather_weights(config, source), DtypePolicy::float32(),
                                    quant::Arithmetic::kFloat, key_values);
}

double loss_of(const CausalLM& model, const Rows& rows) {
  std::vector<const Sequence*> pointers;
  for (const Sequence& one : rows) pointers.push_back(&one);
  return training::summed_loss(model, pointers);
}

void check_apart(const ModelConfig& config) {
  const auto model = model_of(config);
  const Rows together = {tests::sequence_of({13, 2, 21}, 3, kVocab), tests::sequence_of({9}, 39, kVocab)};
  double apart = 0;
  std::int64_t first = 3;
  for (const std::int64_t length : {13, 2, 21, 9}) {
    apart += loss_of(*model, {tests::sequence_of({length}, first, kVocab)});
    first += length;
  }
  CHECK(loss_of(*model, together) == Approx(apart).epsilon(1e-5));
  // Padded alone.
  const Rows padded = {tests::sequence_of({21}, 18, kVocab), tests::sequence_of({9}, 39, kVocab)};
  CHECK(loss_of(*model, padded) == Approx(loss_of(*model, {padded[0]}) + loss_of(*model, {padded[1]})).epsilon(1e-5));
}

ModelConfig llama() { return models::parse(models::config_of("llama")); }

}  // namespace

TEST_CASE("frequencies that depend on a document's length are its own", "[training]") {
  ModelConfig dynamic = llama();
  dynamic.ropes.at(0).type = models::RopeType::kDynamic;
  dynamic.ropes[0].factor = 4;
  dynamic.ropes[0].original_max_position_embeddings = 8;
  check_apart(dynamic);
  ModelConfig steps = dynamic;
  steps.ropes[0].type = models::RopeType::kLongrope;
  steps.ropes[0].original_max_position_embeddings = 12;
  steps.ropes[0].short_factors = std::vector<double>(8, 1.0);
  steps.ropes[0].long_factors = std::vector<double>(8, 5.0);
  check_apart(steps);
}

TEST_CASE("queries grow with the place in their document", "[training]") {
  ModelConfig config = llama();
  config.query_growth = {.beta = 2.0, .length = 4, .shift = 1};
  for (models::LayerConfig& layer : config.layers) layer.has_growth = true;
  check_apart(config);
}

TEST_CASE("sequences that are none are refused, and so are gradients through keys in 8 bits", "[training]") {
  const auto model = model_of(llama());
  const Sequence good = tests::sequence_of({4, 3}, 1, kVocab);
  CHECK(loss_of(*model, {good}) > 0);
  Sequence empty, unlabelled = good, short_lengths = good, negative = good;
  unlabelled.labels.pop_back();
  short_lengths.lengths = {4};
  negative.lengths = {9, -2};
  for (const Sequence& bad : {empty, unlabelled, short_lengths, negative})
    CHECK_THROWS_WITH(loss_of(*model, {bad}), Catch::Contains("documents' lengths are their sum"));
  const auto coded = model_of(llama(), KeyValues::kInt8);
  const Sequence* const rows[] = {&good};
  CHECK_THROWS_WITH(training::backward(*coded, rows),
                    Catch::Contains("keys and values kept in 8 bits have no gradients"));
}

}  // namespace halfbyte
