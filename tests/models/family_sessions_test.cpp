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
#include "models/sessions/session.h"
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
  explicit Played(const CausalLM& model) : model_(model) {}

  void add_row() {
    sessions_.push_back(model_.make_session());
    tokens_.push_back(at::empty({0}, at::kLong));
  }
  Session& session(std::size_t row) { return sessions_.at(row); }

  struct Read {
    std::size_t row;
    std::int64_t count;  // of new tokens
  };
  // One step of these rows. Compares what the last token of each gives.
  void read(const std::vector<Read>& reads, const char* what) {
    std::vector<StepRow> rows;
    std::vector<at::Tensor> ids;
    for (const Read& one : reads) {
      rows.push_back({&sessions_.at(one.row), one.count});
      const at::Tensor fresh = at::arange(one.count, at::kLong).mul(7919).add(31 * ++seed_);
      ids.push_back(fresh.remainder(model_.config().vocab_size));
    }
    const at::Tensor found = model_.head(model_.step(at::cat(ids), rows));
    std::int64_t last = -1;
    for (std::size_t i = 0; i < reads.size(); ++i) {
      at::Tensor& all = tokens_.at(reads[i].row);
      all = at::cat({all, ids[i]});
      last += reads[i].count;
      INFO(what << ", row " << reads[i].row << " of " << all.numel() << " tokens");
      CHECK(sessions_.at(reads[i].row).length() == all.numel());
      CHECK(difference(found[last], all) < 1e-4);
    }
  }

  void cut(std::size_t row, std::int64_t length) {
    sessions_.at(row).cut(length);
    tokens_.at(row) = tokens_.at(row).narrow(0, 0, length);
  }
  // Becomes what `from` was, of that many tokens.
  void go_back(std::size_t row, const Session& from) {
    sessions_.at(row) = from.fork();
    tokens_.at(row) = tokens_.at(row).narrow(0, 0, from.length());
  }
  void fork(std::size_t row) {
    sessions_.push_back(sessions_.at(row).fork());
    tokens_.push_back(tokens_.at(row));
  }

 private:
  // Relative to the largest logit.
  double difference(const at::Tensor& found, const at::Tensor& tokens) const {
    Session fresh = model_.make_session();
    const at::Tensor wanted = model_.head(model_.hidden(tokens.unsqueeze(0), fresh))[0][-1];
    return ((found - wanted).abs().max() / wanted.abs().max()).item<double>();
  }

  const CausalLM& model_;
  std::vector<Session> sessions_;
  std::vector<at::Tensor> tokens_;  // of each
  std::int64_t seed_ = 0;
};

void play(const CausalLM& model) {
  Played played(model);
  for (int row = 0; row < 3; ++row) played.add_row();
  for (const std::int64_t count : {5, 1, 2, 17}) played.read({{0, count}}, "a prompt in pieces");
  played.read({{1, 6}}, "another row");
  for (int step = 0; step < 3; ++step) played.read({{0, 1}, {1, 1}}, "two rows decoded together");
  played.read({{0, 1}, {2, 9}, {1, 1}}, "a prompt read beside them");
  played.read({{0, 4}, {1, 4}, {2, 4}}, "three rows of several tokens");

  const Session snapshot = played.session(0).fork();
  played.read({{0, 7}}, "on from a snapshot");
  played.go_back(0, snapshot);
  played.read({{0, 3}}, "on otherwise from the same snapshot");
  played.fork(0);
  played.read({{0, 2}, {3, 30}}, "and apart, each by itself");
  played.read({{3, 2}, {0, 2}}, "which leaves the other as it was");

  played.cut(1, 0);
  played.read({{1, 11}}, "a row begun anew");
  played.read({{1, 80}}, "over several blocks");
  played.read({{1, 1}, {3, 2}}, "and on");
  if (played.session(1).least() <= 90) {
    played.cut(1, 90);
    played.read({{1, 3}, {2, 1}}, "cut by a few tokens");
  }
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
  const c10::InferenceMode guard;
  Session session = model.module().make_session();
  constexpr std::int64_t kTokens = 128;  // whole blocks
  const std::int64_t layers = model.module().config().num_hidden_layers;
  model.module().hidden(at::arange(kTokens, at::kLong).remainder(90).unsqueeze(0), session);
  CHECK(session.bytes() == layers * kTokens * (latent.rank + latent.turned_dim) * 4);
}

}  // namespace
}  // namespace halfbyte::models
