// Whatever a session went through, it gives what computing afresh gives: in every family.
#include "tests/catch.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include <ATen/ATen.h>

#include "models/architectures/model_config.h"
#include "models/modules/key_value_cache.h"
#include "models/modules/session.h"
#include "tests/places.h"

namespace halfbyte::models {
namespace {

std::vector<std::filesystem::path> all_families() {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(tests::data("families"))) out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

// A session beside the tokens that each of its rows should have.
class Played {
 public:
  Played(const CausalLM& model, std::int64_t rows, std::int64_t capacity)
      : model_(model), session_(model.make_session(rows, capacity)), rows_(static_cast<std::size_t>(rows)) {}

  Session& session() { return session_; }

  // Reads `count` new tokens in each of the rows, and compares what the last of them gives. Rows that are held keep
  // none.
  void read(std::int64_t first_row, std::int64_t rows, std::int64_t count, const char* what) {
    at::Tensor ids = at::arange(rows * count, at::kLong).mul(7919).add(31 * ++seed_);
    ids = ids.remainder(model_.config().vocab_size).view({rows, count});
    const at::Tensor found = model_.head(model_.hidden(ids, session_, first_row));
    for (std::int64_t i = 0; i < rows; ++i) {
      at::Tensor& row = rows_.at(static_cast<std::size_t>(first_row + i));
      const at::Tensor all = row.defined() ? at::cat({row, ids[i]}) : ids[i];
      INFO(what << ", row " << first_row + i << " of " << all.numel() << " tokens");
      CHECK(difference(found[i][count - 1], all) < 1e-4);
      if (session_.length(first_row + i) == all.numel()) row = all;
    }
  }

  void forget(std::int64_t row) { rows_.at(static_cast<std::size_t>(row)) = at::Tensor(); }
  at::Tensor tokens(std::int64_t row) const { return rows_.at(static_cast<std::size_t>(row)); }
  void put_back(std::int64_t row, const at::Tensor& tokens) { rows_.at(static_cast<std::size_t>(row)) = tokens; }

 private:
  // Relative to the largest logit.
  double difference(const at::Tensor& found, const at::Tensor& tokens) const {
    Session fresh = model_.make_session(1, tokens.numel());
    const at::Tensor wanted = model_.head(model_.hidden(tokens.unsqueeze(0), fresh, 0))[0][-1];
    return ((found - wanted).abs().max() / wanted.abs().max()).item<double>();
  }

  const CausalLM& model_;
  Session session_;
  std::vector<at::Tensor> rows_;
  std::int64_t seed_ = 0;
};

void play(const CausalLM& model) {
  Played played(model, 3, 60);
  for (const std::int64_t count : {5, 1, 2, 17}) played.read(0, 1, count, "a prompt in pieces");
  played.read(1, 1, 6, "another row");
  for (int step = 0; step < 3; ++step) played.read(0, 2, 1, "two rows decoded together");
  played.read(2, 1, 9, "a row more");
  played.read(0, 3, 4, "three rows of several tokens");

  const Snapshot snapshot = played.session().snapshot(0);
  const at::Tensor before = played.tokens(0);
  played.read(0, 1, 7, "on from a snapshot");
  played.session().restore(snapshot);
  played.put_back(0, before);
  played.read(0, 1, 3, "on otherwise from the same snapshot");

  played.session().reset(1);
  played.forget(1);
  played.read(1, 1, 11, "a row begun anew");
  played.session().hold(1);
  played.read(0, 3, 1, "one of three is held");
  played.session().go_back(1, played.session().length(1), {});
  played.read(1, 1, 2, "and goes on");

  played.session().grow(90);
  played.read(0, 2, 18, "after it has grown");
}

TEST_CASE("sessions: every family goes on, back and apart as if computed afresh", "[families][sessions]") {
  const c10::InferenceMode guard;
  for (const auto& family : all_families()) {
    INFO(family.filename().string());
    play(load_low_bit(family, {.dtype = DtypePolicy::float32()}).module());
  }
}

TEST_CASE("sessions: attention by latent vectors keeps the latent and one turned key a token", "[families][sessions]") {
  const Model model = load_low_bit(tests::data("families/deepseek-v3"), {.dtype = DtypePolicy::float32()});
  const LatentConfig& latent = model.module().config().latent;
  Session session = model.module().make_session(2, 10);
  for (std::int64_t layer = 0; layer < model.module().config().num_hidden_layers; ++layer) {
    auto& cache = session.state<KeyValueCache>(layer);
    CHECK(cache.keys(at::kFloat).sizes() == at::IntArrayRef({2, 1, 10, latent.rank}));
    CHECK(cache.values(at::kFloat).sizes() == at::IntArrayRef({2, 1, 10, latent.turned_dim}));
  }
}

}  // namespace
}  // namespace halfbyte::models
