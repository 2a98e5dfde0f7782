// A text does not depend on how its tokens are divided into passes: what a scheduler that serves many at once rests on.
#include <algorithm>
#include <numeric>

#include "tests/catch.h"

#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/load_low_bit.h>

#include "models/generation/passes.h"
#include "models/sessions/session.h"
#include "tests/loader/quantized.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using models::Session;
using models::StepRow;

TokenIds some_text(std::int64_t count) {
  TokenIds ids = {1};
  for (std::int64_t i = 1; i < count; ++i) ids.push_back(259 + (i * i + 7 * i) % 700);
  return ids;
}

// The hidden states of a prompt read in passes of these sizes, the last one again and again.
at::Tensor read(const Model& model, const TokenIds& ids, std::vector<std::int64_t> sizes) {
  const quant::RowsAlike alike(models::kind_of_prompt(static_cast<std::int64_t>(ids.size())));
  Session session = model.module().make_session();
  std::vector<at::Tensor> out;
  const auto all = static_cast<std::int64_t>(ids.size());
  for (std::int64_t at = 0, i = 0, next = 0; at < all; at = next, ++i) {
    next = std::min(all, at + sizes[std::min<std::size_t>(static_cast<std::size_t>(i), sizes.size() - 1)]);
    const TokenIds some(ids.begin() + at, ids.begin() + next);
    out.push_back(model.module().hidden(at::tensor(some).unsqueeze(0), session));
  }
  return at::cat(out, 1);
}

const Model& packed() {
  static const Model model = load_low_bit(tests::quantized_tiny_llama());
  return model;
}

TEST_CASE("a prompt's hidden states do not depend on the sizes of passes, bit for bit", "[passes]") {
  const c10::InferenceMode guard;
  const TokenIds ids = some_text(200);
  const at::Tensor wanted = read(packed(), ids, {200});
  for (const std::vector<std::int64_t>& sizes : std::vector<std::vector<std::int64_t>>{
           {64}, {1}, {9}, {13, 64, 1, 8, 50}, {128, 7}, {199, 1}, {3, 197}, {65, 63}})
    CHECK(at::equal(read(packed(), ids, sizes), wanted));
}

TEST_CASE("a prompt read beside others gives what it gives alone, bit for bit", "[passes]") {
  const c10::InferenceMode guard;
  const TokenIds one = some_text(70), other = some_text(33);
  const at::Tensor alone = read(packed(), one, {70});
  const quant::RowsAlike alike(quant::RowsKind::kMany);
  Session a = packed().module().make_session(), b = packed().module().make_session();
  TokenIds both = other;
  both.insert(both.end(), one.begin(), one.end());
  const StepRow rows[] = {{&b, 33}, {&a, 70}};
  CHECK(at::equal(packed().module().step(at::tensor(both), rows).narrow(0, 33, 70), alone[0]));
}

TEST_CASE("tokens chosen beside those of others are what they are alone, bit for bit", "[passes]") {
  const c10::InferenceMode guard;
  const quant::RowsAlike alike;
  const auto start = [](std::int64_t length) {
    Session session = packed().module().make_session();
    packed().module().hidden(at::tensor(some_text(length)).unsqueeze(0), session);
    return session;
  };
  std::vector<Session> alone, together;
  std::vector<StepRow> rows;
  TokenIds next;
  for (std::int64_t i = 0; i < 8; ++i) {
    alone.push_back(start(3 + 19 * i));
    together.push_back(alone.back().fork());
    next.push_back(300 + i);
  }
  for (Session& session : together) rows.push_back({&session, 1});
  const at::Tensor logits = packed().module().head(packed().module().step(at::tensor(next), rows));
  for (std::int64_t i = 0; i < 8; ++i) {
    const StepRow row{&alone[static_cast<std::size_t>(i)], 1};
    const at::Tensor own =
        packed().module().head(packed().module().step(at::tensor({next[std::size_t(i)]}), {&row, 1}));
    CHECK(at::equal(own[0], logits[i]));
  }
}

TEST_CASE("generate() gives several prompts what it gives each alone", "[passes]") {
  const GenerateOptions options{.max_gen_len = 24, .temperature = 0, .ignore_eos = true};
  std::vector<TokenIds> prompts;
  for (const std::int64_t length : {1, 5, 8, 9, 40, 71, 130, 17}) prompts.push_back(some_text(length));
  const std::vector<Generation> together = packed().generate(prompts, options);
  for (std::size_t i = 0; i < prompts.size(); ++i)
    CHECK(packed().generate({prompts[i]}, options)[0].tokens == together[i].tokens);
}

}  // namespace
}  // namespace halfbyte
