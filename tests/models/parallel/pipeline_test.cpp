// Ranks in stages of layers give what the whole gives: in every family.
#include "models/parallel/pipeline.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/convert.h>
#include <halfbyte/evaluate.h>
#include <halfbyte/load_low_bit.h>

#include "tests/catch.h"
#include "tests/models/parallel/forwarding_group.h"
#include "tests/models/parallel/given.h"
#include "tests/models/training/trained_family.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using tests::Given;

LoadOptions in_stages(int pipeline, const DtypePolicy& policy = DtypePolicy::float32()) {
  LoadOptions out{.dtype = policy};
  out.pipeline = pipeline;
  return out;
}

// Logits of a prompt that is read in several parts. Shape: (rows, tokens, vocab_size).
at::Tensor logits_of(const Model& model, std::int64_t rows, std::int64_t tokens) {
  const c10::InferenceMode inference;
  const TokenIds ids = tests::prompt_of(model, rows * tokens);
  return model.module().forward(at::tensor(at::IntArrayRef(ids)).view({rows, tokens}));
}

// What a rank does with others, in its order.
class Noted : public tests::ForwardingGroup {
 public:
  Noted(std::shared_ptr<Group> group, std::vector<std::string>& notes)
      : ForwardingGroup(std::move(group)), notes_(notes) {}
  void sum(std::span<float> values) override {
    note("sum", values.size());
    ForwardingGroup::sum(values);
  }
  void send(std::span<const float> values, int to) override {
    note("send", values.size());
    ForwardingGroup::send(values, to);
  }
  void receive(std::span<float> values, int from) override {
    note("receive", values.size());
    ForwardingGroup::receive(values, from);
  }

 private:
  void note(const std::string& what, std::size_t count) const { notes_.push_back(what + " " + std::to_string(count)); }

  std::vector<std::string>& notes_;
};

}  // namespace

TEST_CASE("stages: one goes on to the next part of a prompt without waiting for the stages after it", "[ranks]") {
  std::vector<std::vector<std::string>> notes(2);
  std::size_t hidden = 0, vocabulary = 0;
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    LoadOptions options = in_stages(2);
    auto& own = notes[static_cast<std::size_t>(group->rank())];
    options.group = std::make_shared<Noted>(group, own);
    const Model model = load_low_bit(tests::data("families") / "llama2", options);
    const c10::InferenceMode inference;
    models::Session session = model.module().make_session();
    const TokenIds ids = tests::prompt_of(model, 300);
    const at::Tensor given = model.module().hidden(at::tensor(at::IntArrayRef(ids)).unsqueeze(0), session);
    model.module().head(given.narrow(1, 299, 1));
    if (group->rank() != 0) return;
    hidden = static_cast<std::size_t>(model.config().hidden_size);
    vocabulary = static_cast<std::size_t>(model.config().vocab_size);
  });
  const auto of = [&](const std::string& what, std::size_t tokens) { return what + std::to_string(tokens * hidden); };
  const std::string sum = "sum " + std::to_string(vocabulary);
  CHECK(notes[0] ==
        std::vector<std::string>{of("send ", 100), of("send ", 100), of("send ", 100), of("receive ", 1), sum});
  CHECK(notes[1] ==
        std::vector<std::string>{of("receive ", 100), of("receive ", 100), of("receive ", 100), of("send ", 1), sum});
}

TEST_CASE("stages: every family's logits and greedy tokens are those of one process", "[ranks]") {
  for (const auto& path : tests::all_families()) {
    for (const int size : {2, 4}) tests::check_ranks(path, size, in_stages(2), 2e-4);
  }
}

TEST_CASE("stages: prompts longer than what goes from stage to stage at once", "[ranks]") {
  for (const char* family : {"llama2", "gemma3", "gemma4-ple", "llama4", "qwen3-next", "lfm2", "deepseek-v3", "phi3"}) {
    INFO(family);
    const auto path = tests::data("families") / family;
    const at::Tensor wanted = logits_of(load_low_bit(path, in_stages(1)), 2, 300);
    std::vector<at::Tensor> found(4);
    tests::Ranks(4).run([&](const std::shared_ptr<Group>& group) {
      LoadOptions options = in_stages(2);
      options.group = group;
      found[static_cast<std::size_t>(group->rank())] = logits_of(load_low_bit(path, options), 2, 300);
    });
    for (const at::Tensor& each : found) {
      CHECK((each - wanted).abs().max().item<double>() < 2e-4);
      CHECK(each.equal(found[0]));
    }
  }
}

TEST_CASE("stages: prompts that one process reads in several passes", "[ranks]") {
  const auto text_of = [&](const LoadOptions& options) {
    const Model model = load_low_bit(tests::data("families") / "llama31-rope", options);
    return model.generate({tests::prompt_of(model, 1200)}, {.max_gen_len = 6, .ignore_eos = true}).front().tokens;
  };
  const TokenIds wanted = text_of(in_stages(1));
  std::vector<TokenIds> found(2);
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    LoadOptions options = in_stages(2);
    options.group = group;
    found[static_cast<std::size_t>(group->rank())] = text_of(options);
  });
  for (const TokenIds& each : found) CHECK(each == wanted);
}

TEST_CASE("stages: each knows to how few tokens a session can be cut, whatever layers it has", "[ranks]") {
  for (const char* family : {"cohere2", "llama4", "lfm2", "qwen3-next"}) {
    const auto path = tests::data("families") / family;
    const auto least_of = [](const Model& model) {
      const c10::InferenceMode inference;
      models::Session session = model.module().make_session();
      std::vector<std::int64_t> out;
      for (const std::int64_t count : {90, 7, 200}) {
        const TokenIds ids = tests::prompt_of(model, count);
        model.module().hidden(at::tensor(at::IntArrayRef(ids)).unsqueeze(0), session);
        out.push_back(session.least());
        if (count == 7) session.cut(session.least());
      }
      session.cut(0);
      out.push_back(session.least());
      return out;
    };
    const int stages = static_cast<int>(load_low_bit(path, in_stages(1)).config().num_hidden_layers);
    const auto wanted = least_of(load_low_bit(path, in_stages(1)));
    CHECK(wanted[2] > 0);
    tests::Ranks(stages).run([&](const std::shared_ptr<Group>& group) {
      LoadOptions options = in_stages(stages);
      options.group = group;
      if (least_of(load_low_bit(path, options)) != wanted) throw std::runtime_error(std::string(family) + ": another");
    });
  }
}

TEST_CASE("stages: every policy, and what ranks say of their layers", "[ranks]") {
  for (const char* policy : {"amp:bfloat16", "amp:float16", "bfloat16", "original"}) {
    INFO(policy);
    const LoadOptions options = in_stages(2, DtypePolicy::parse(policy));
    const Given wanted = tests::given_by(load_low_bit(tests::data("tiny-llama"), in_stages(1, options.dtype)));
    const auto found = tests::given_by_ranks(tests::data("tiny-llama"), 2, options);
    CHECK(found[0].logits.equal(found[1].logits));
    CHECK((found[0].logits - wanted.logits).norm().item<double>() < 0.02 * wanted.logits.norm().item<double>());
    CHECK(found[1].note.find("rank 1 of 2, stage 2 of 2, has layers ") == 0);
    CHECK(found[1].note.find(": whole, and a part of the head (what is whole: ") != std::string::npos);
  }
}

TEST_CASE("stages: packed weights, with the kernels that they take", "[ranks]") {
  const tests::Scratch scratch;
  convert::QuantizeOptions packing;
  packing.halfbyte_only = true;
  convert::quantize(tests::data("tiny-llama"), scratch / "packed", packing);
  tests::check_ranks(scratch / "packed", 4, in_stages(2), 2e-4);
  const LoadOptions options = in_stages(2, DtypePolicy::amp(Dtype::kBfloat16));
  const Given wanted = tests::given_by(load_low_bit(scratch / "packed", in_stages(1, options.dtype)));
  const auto found = tests::given_by_ranks(scratch / "packed", 2, options);
  // The same layers in the same kernels: nothing is added up otherwise.
  CHECK(found[0].logits.equal(wanted.logits));
  CHECK(found[0].greedy == wanted.greedy);
}

TEST_CASE("stages: a rank has its share of the layers' weights alone", "[ranks]") {
  const auto path = tests::data("families") / "gemma4-moe";
  const auto layers_of = [](const Model& model) {
    std::map<std::string, std::uint64_t> out;
    for (const LoadedTensor& one : model.report().tensors) {
      if (one.name.find(".layers.") != std::string::npos) out[one.name] = one.bytes;
    }
    return out;
  };
  const auto bytes_of = [](const std::map<std::string, std::uint64_t>& tensors) {
    std::uint64_t out = 0;
    for (const auto& [name, bytes] : tensors) out += bytes;
    return out;
  };
  const auto whole = layers_of(load_low_bit(path, in_stages(1)));
  std::vector<std::map<std::string, std::uint64_t>> found(3);
  std::vector<std::string> without_embedding(3);
  tests::Ranks(3).run([&](const std::shared_ptr<Group>& group) {
    LoadOptions options = in_stages(3);
    options.group = group;
    const Model model = load_low_bit(path, options);
    const auto rank = static_cast<std::size_t>(group->rank());
    found[rank] = layers_of(model);
    for (const auto& item : model.module().named_parameters()) {
      if (item.key().find("embed_tokens") != std::string::npos) without_embedding[rank] = item.key();
    }
  });
  std::map<std::string, std::uint64_t> all;
  for (const auto& each : found) {
    CHECK(bytes_of(each) < bytes_of(whole) / 2);
    all.insert(each.begin(), each.end());
  }
  CHECK(all == whole);
  CHECK(bytes_of(found[0]) + bytes_of(found[1]) + bytes_of(found[2]) == bytes_of(whole));
  CHECK_FALSE(without_embedding[0].empty());
  CHECK(without_embedding[1].empty());
}

TEST_CASE("stages: perplexity, with a second model beside the first", "[ranks]") {
  const auto path = tests::data("families") / "llama2";
  const auto perplexity_of = [&](const LoadOptions& options) {
    const Model model = load_low_bit(path, options), other = load_low_bit(path, options);
    PerplexityOptions own;
    own.context = 48;
    return perplexity(model.module(), tests::prompt_of(model, 150), {}, own, &other.module());
  };
  const double wanted = perplexity_of(in_stages(1)).perplexity;
  tests::Ranks(4).run([&](const std::shared_ptr<Group>& group) {
    LoadOptions options = in_stages(2);
    options.group = group;
    const PerplexityResult found = perplexity_of(options);
    if (std::abs(found.perplexity - wanted) > 1e-4 * wanted || found.divergence->kl_mean > 1e-9)
      throw std::runtime_error("another perplexity: " + std::to_string(found.perplexity));
  });
}

TEST_CASE("stages: ranks in others are refused by name", "[ranks]") {
  std::vector<std::string> said(2);
  tests::Ranks(2).run([&](const std::shared_ptr<Group>& group) {
    LoadOptions options = in_stages(group->rank() + 1);
    options.group = group;
    try {
      load_low_bit(tests::data("tiny-llama"), options);
    } catch (const Error& error) {
      said[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  for (const std::string& each : said) {
    INFO(each);
    CHECK(each.find("rank 1 runs another thing than rank 0") != std::string::npos);
    CHECK(each.find(": pipeline 2; there it is pipeline 1") != std::string::npos);
  }
  CHECK_THROWS_WITH(tests::given_by_ranks(tests::data("families") / "llama2", 3, in_stages(3)),
                    Catch::Contains("the 2 layers of this model can be divided into 2 stages at most"));
  CHECK_THROWS_WITH(load_low_bit(tests::data("tiny-llama"), in_stages(2)), Catch::Contains("none were given"));
}

TEST_CASE("stages: parts of a step follow each other, and have a session once", "[ranks]") {
  const auto path = tests::data("families") / "llama2";
  const Model model = load_low_bit(path, in_stages(1));
  std::vector<models::Session> sessions = model.module().make_sessions(3);
  const std::vector<models::StepRow> rows{{&sessions[0], 5}, {&sessions[1], 9}, {&sessions[2], 1}};
  const auto parts = models::micro_batches(rows, 4);
  std::vector<std::string> found;
  for (const models::MicroBatch& part : parts) {
    std::string text = std::to_string(part.first) + ":";
    for (const models::StepRow& row : part.rows)
      text += " " + std::to_string(row.session - sessions.data()) + "x" + std::to_string(row.tokens);
    found.push_back(text);
  }
  CHECK(found == std::vector<std::string>{"0: 0x4", "4: 0x1 1x3", "8: 1x4", "12: 1x2 2x1"});
}

}  // namespace halfbyte
