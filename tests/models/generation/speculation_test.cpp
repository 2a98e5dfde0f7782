// Speculation: the text is the one without, bit for bit, whatever is guessed; and what guessing costs is bounded.
#include "tests/catch.h"

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "models/generation/guess_budget.h"
#include "models/generation/lookup.h"
#include "models/sessions/session.h"
#include "quant/rows_alike.h"
#include "tests/loader/quantized.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using models::GuessBudget;
using models::Lookup;

// Under the default policy: activations in 8 bits where they are faster, so that a rounding may become a step.
const Model& packed() {
  static const Model model = load_low_bit(tests::quantized_tiny_llama());
  return model;
}

const Model& original() {
  static const Model model = load_low_bit(tests::data("tiny-llama"));
  return model;
}

// Repeats itself, so that there is something to look up.
TokenIds quoting(std::int64_t count) {
  TokenIds ids = {1};
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(300 + (i % 17) * 11);
  return ids;
}

void check_same(const Model& model, const TokenIds& prompt, GenerateOptions options, bool has_guesses = true) {
  options.logprobs = true;
  GenerateOptions plain = options;
  plain.lookup = false;
  plain.draft = nullptr;
  const Generation wanted = model.generate({prompt}, plain)[0], found = model.generate({prompt}, options)[0];
  CHECK(found.tokens == wanted.tokens);
  CHECK((found.logprobs == wanted.logprobs));
  CHECK(found.finish_reason == wanted.finish_reason);
  CHECK(wanted.guessed_tokens == 0);
  CHECK(found.right_guesses <= found.guessed_tokens);
  if (has_guesses) CHECK(found.guessed_tokens > 0);
}

TEST_CASE("text with guesses is the text without, token by token and bit for bit", "[speculation]") {
  for (const Model* model : {&packed(), &original()}) {
    for (const double temperature : {0.0, 0.8}) {
      const GenerateOptions options{
          .max_gen_len = 90, .temperature = temperature, .seed = 3, .ignore_eos = true, .lookup = true};
      check_same(*model, quoting(60), options);
      GenerateOptions drafted = options;
      drafted.draft = &original().module();
      check_same(*model, quoting(20), drafted);
      drafted.lookup = false;
      drafted.repetition_penalty = 1.3;
      check_same(*model, {1, 300, 301}, drafted);
    }
  }
}

TEST_CASE("a model that guesses for itself is always right", "[speculation]") {
  const GenerateOptions options{.max_gen_len = 60, .temperature = 0, .ignore_eos = true, .draft = &packed().module()};
  const Generation out = packed().generate({{1, 300, 301}}, options)[0];
  CHECK(out.guessed_tokens > 0);
  CHECK(out.right_guesses == out.guessed_tokens);
}

TEST_CASE("guesses end where a text does", "[speculation]") {
  GenerateOptions options{.max_gen_len = 40, .temperature = 0, .lookup = true, .draft = &packed().module()};
  const TokenIds whole = packed().generate({quoting(40)}, options)[0].tokens;
  for (const std::size_t at : {std::size_t{3}, std::size_t{9}, whole.size() - 2}) {
    options.stop_tokens = {whole[at]};
    check_same(packed(), quoting(40), options, /*has_guesses=*/false);
    options.stop_tokens = {};
    options.max_gen_len = static_cast<std::int64_t>(at);
    check_same(packed(), quoting(40), options, /*has_guesses=*/false);
  }
  check_same(packed(), TokenIds(250, 300), {.max_gen_len = 40, .temperature = 0, .ignore_eos = true, .lookup = true},
             /*has_guesses=*/false);  // the context is full before
}

TEST_CASE("what a prompt cache holds is what was kept of the guesses", "[speculation]") {
  PromptCache cache;
  GenerateOptions options{.max_gen_len = 30, .temperature = 0, .ignore_eos = true, .cache = &cache, .lookup = true};
  TokenIds talk = quoting(30);
  for (int turn = 0; turn < 3; ++turn) {
    const Generation kept = packed().generate({talk}, options)[0];
    CHECK(cache.tokens() == static_cast<std::int64_t>(talk.size()) + 29);
    GenerateOptions plain{.max_gen_len = 30, .temperature = 0, .ignore_eos = true};
    CHECK(kept.tokens == packed().generate({talk}, plain)[0].tokens);
    talk.insert(talk.end(), kept.tokens.begin(), kept.tokens.end());
    talk.push_back(77 + turn);
  }
}

TEST_CASE("windows, sinks and experts do not change what a guess is worth", "[speculation]") {
  for (const char* name : {"families/gemma2", "families/gpt-oss", "families/mixtral", "families/qwen3"}) {
    INFO(name);
    const Model model = load_low_bit(tests::data(name));
    const std::int64_t room = model.module().config().max_position_embeddings;
    TokenIds prompt;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(room / 2, 60); ++i) prompt.push_back(3 + i % 7);
    check_same(model, prompt, {.max_gen_len = 40, .temperature = 0, .ignore_eos = true, .lookup = true});
  }
}

TEST_CASE("several prompts, and recurrent states, go without guesses", "[speculation]") {
  const GenerateOptions options{.max_gen_len = 20, .temperature = 0, .ignore_eos = true, .lookup = true};
  for (const Generation& one : packed().generate({quoting(40), quoting(30)}, options)) CHECK(one.guessed_tokens == 0);
  const Model recurrent = load_low_bit(tests::data("families/qwen3-next"));
  TokenIds prompt(20, 5);
  const Generation out = recurrent.generate({prompt}, options)[0];
  CHECK(out.guessed_tokens == 0);
  CHECK(out.tokens ==
        recurrent.generate({prompt}, {.max_gen_len = 20, .temperature = 0, .ignore_eos = true})[0].tokens);
}

TEST_CASE("a draft model of another vocabulary is refused", "[speculation]") {
  const Model other = load_low_bit(tests::data("families/qwen3"));
  const GenerateOptions options{.draft = &other.module()};
  CHECK_THROWS_WITH(packed().generate({{1, 5}}, options),
                    Catch::Contains("a vocabulary of 320 tokens and the model one of 1024"));
}

TEST_CASE("rows alike: a pass of eight tokens gives what eight passes give, bit for bit", "[speculation]") {
  const c10::InferenceMode guard;
  const TokenIds ids = quoting(70);
  const auto run = [&](std::int64_t together) {
    models::Session session = packed().module().make_session();
    std::vector<at::Tensor> out;
    packed().module().hidden(at::tensor(TokenIds(ids.begin(), ids.begin() + 40)).unsqueeze(0), session);
    for (std::int64_t at = 40; at + 8 <= 71; at += together) {
      const quant::RowsAlike alike;
      const TokenIds some(ids.begin() + at, ids.begin() + at + together);
      out.push_back(packed().module().head(packed().module().hidden(at::tensor(some).unsqueeze(0), session)));
    }
    return at::cat(out, 1);
  };
  const at::Tensor alone = run(1), eight = run(8);
  CHECK(at::equal(eight.narrow(1, 0, 24), alone.narrow(1, 0, 24)));
  CHECK(at::equal(run(3).narrow(1, 0, 21), alone.narrow(1, 0, 21)));
}

TEST_CASE("a lookup continues the last run that ended alike", "[speculation]") {
  Lookup lookup;
  TokenIds text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3};
  Lookup::Guess guess = lookup.guess(text, 4);
  CHECK(guess.tokens == TokenIds{4, 5, 6, 7});
  CHECK(Lookup::kLengths[guess.length] == 2);
  text.push_back(4);
  guess = lookup.guess(text, 2);
  CHECK(guess.tokens == TokenIds{5, 6});
  CHECK(Lookup::kLengths[guess.length] == 3);
  text.insert(text.end(), {50, 60, 2, 3});  // 2 3 came twice: what followed last counts
  CHECK(lookup.guess(text, 3).tokens == TokenIds{4, 50, 60});
  text.push_back(99);
  CHECK(lookup.guess(text, 3).tokens.empty());
  CHECK(lookup.guess(text, 0).tokens.empty());
  Lookup fresh;
  CHECK(fresh.guess(TokenIds{5}, 3).tokens.empty());
  const TokenIds loop = {7, 8, 7, 8, 7, 8};
  CHECK(fresh.guess(loop, 5).tokens == TokenIds{7, 8, 7, 8, 7});
}

TEST_CASE("a budget guesses more the oftener guesses are right, and nothing where they are not", "[speculation]") {
  const double trust[] = {0.5, 0.5};
  GuessBudget budget(trust);
  const std::size_t first = budget.best(0, 7);
  CHECK(first > 0);
  for (int i = 0; i < 40; ++i) budget.verified(0, 4, 4);
  CHECK(budget.best(0, 7) == 7);
  CHECK(budget.best(0, 3) == 3);
  CHECK(budget.best(0, 7, /*seconds=*/2.0) == 0);  // guessing takes twice as long as a pass
  CHECK(budget.best(1, 7) == first);               // another kind
  for (int i = 0; i < 40; ++i) budget.verified(0, 4, 0);
  CHECK(budget.best(0, 7) == 0);
  for (int i = 0; i < 400; ++i) budget.declined(0);
  CHECK(budget.best(0, 7) > 0);  // tried again some time
}

TEST_CASE("a budget heeds what passes take", "[speculation]") {
  const double trust[] = {0.7};
  GuessBudget cheap(trust), dear(trust);
  for (int i = 0; i < 100; ++i) {
    for (std::size_t rows = 1; rows <= 8; ++rows) {
      cheap.passed(rows, 0.010 + 0.0001 * static_cast<double>(rows));
      dear.passed(rows, 0.010 * static_cast<double>(rows));
    }
  }
  CHECK(cheap.best(0, 7) >= 4);
  CHECK(dear.best(0, 7) == 0);
}

}  // namespace
}  // namespace halfbyte
