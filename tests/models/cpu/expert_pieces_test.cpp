// Experts by pieces against their products one after the other.
#include "models/cpu/expert_pieces.h"

#include <cmath>
#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include <halfbyte/error.h>

#include "models/cpu/gates.h"
#include "models/sessions/pass_watch.h"
#include "tests/catch.h"
#include "tests/quant/max_threads.h"
#include "tests/quant/random_values.h"

namespace halfbyte::models::cpu {
namespace {

using quant::test::bytes;
using quant::test::gaussian;
using quant::test::Packed;

constexpr std::int64_t kHidden = 64, kSize = 96, kInputTokens = 150;

struct Expert {
  std::vector<Packed> inputs;  // gate and up, or one of both
  Packed down;
  std::vector<std::int64_t> tokens;
};

// What products have in common.
struct Kind {
  SchemeId scheme = SchemeId::kSymInt4;
  Dtype dtype = Dtype::kFloat32;  // of what they multiply
  quant::Arithmetic arithmetic = quant::Arithmetic::kInt8;
};

Packed matrix(SchemeId id, std::int64_t rows, std::int64_t in_features, unsigned seed) {
  return quant::test::quantized(gaussian(static_cast<std::size_t>(rows * in_features), seed), in_features,
                                {&scheme(id), 32, quant::Search::kAbsmax, Dtype::kBfloat16});
}

// As many as there are counts of tokens.
class Experts {
 public:
  Experts(std::size_t inputs_each, const std::vector<std::int64_t>& counts, const Kind& kind = {})
      : kind_(kind),
        input_(quant::test::to_dtype(gaussian(static_cast<std::size_t>(kInputTokens * kHidden), 1, 1.0f), kind.dtype)) {
    for (const std::int64_t count : counts) {
      const auto seed = static_cast<unsigned>(10 * experts_.size());
      Expert& own = experts_.emplace_back(Expert{{}, matrix(kind.scheme, kHidden, kSize, seed + 2), {}});
      for (std::size_t i = 0; i < inputs_each; ++i)
        own.inputs.push_back(matrix(kind.scheme, static_cast<std::int64_t>(2 / inputs_each) * kSize, kHidden,
                                    seed + 3 + static_cast<unsigned>(i)));
      for (std::int64_t i = 0; i < count; ++i) own.tokens.push_back((i * 7 + count) % kInputTokens);
      rows_ += count;
    }
    output_.resize(static_cast<std::size_t>(rows_ * kHidden), NAN);
    std::int64_t row = 0;
    for (const Expert& own : experts_) {
      for (const Packed& input : own.inputs) inputs_.push_back(product(input, own));
      for (std::size_t i = inputs_.size() - inputs_each; i < inputs_.size(); ++i) {
        inputs_[i].arguments.input = input_.data();
        inputs_[i].arguments.input_rows = own.tokens.data();
      }
      downs_.push_back(product(own.down, own));
      downs_.back().arguments.output = bytes(output_) + row * kHidden * size_bytes(Dtype::kFloat32);
      row += downs_.back().arguments.rows;
    }
  }

  ExpertRows rows() const { return {inputs_, downs_, Activation::kSilu}; }
  std::vector<quant::Product>& inputs() { return inputs_; }
  const std::vector<float>& output() const { return output_; }

  std::vector<float> one_after_the_other() const {
    std::vector<float> all;
    for (std::size_t expert = 0; expert < experts_.size(); ++expert) {
      const std::vector<float> own = of_one(expert);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

 private:
  quant::Product product(const Packed& weight, const Expert& expert) const {
    return {weight.matrix(),
            {nullptr, kind_.dtype, static_cast<std::int64_t>(expert.tokens.size()), nullptr, Dtype::kFloat32, nullptr,
             Dtype::kFloat32, kind_.arithmetic}};
  }

  std::vector<float> of_one(std::size_t expert) const {
    const std::size_t each = inputs_.size() / downs_.size();
    quant::Product down = downs_[expert];
    const std::int64_t rows = down.arguments.rows;
    std::vector<float> between[2], out(static_cast<std::size_t>(rows * kHidden));
    for (std::size_t i = 0; i < each; ++i) {
      quant::Product input = inputs_[expert * each + i];
      between[i].resize(static_cast<std::size_t>(rows * input.weight.out_features));
      input.arguments.output = bytes(between[i]);
      quant::linear(std::span(&input, 1));
    }
    Buffer gated_rows;
    down.arguments.input = gated({Activation::kSilu, rows, kSize, kind_.dtype}, between[0].data(),
                                 each == 1 ? nullptr : between[1].data(), gated_rows);
    down.arguments.output = bytes(out);
    quant::linear(std::span(&down, 1));
    return out;
  }

  Kind kind_;
  std::vector<std::byte> input_;
  std::vector<Expert> experts_;
  std::int64_t rows_ = 0;
  std::vector<float> output_;
  std::vector<quant::Product> inputs_, downs_;
};

TEST_CASE("pieces of experts give what their products give one after the other, bit for bit", "[experts]") {
  ExpertPiecesWork work;  // kept, as a model does
  for (const int threads : {1, 2, 3}) {
    const quant::test::MaxThreads those(threads);
    for (const std::size_t inputs_each : {2, 1}) {
      for (const auto& counts : {std::vector<std::int64_t>{40, 1, 300, 17}, {129, 128}}) {
        INFO(threads << " threads, " << inputs_each << " matrices before the last, " << counts.size() << " experts");
        const Experts experts(inputs_each, counts);
        REQUIRE(multiply_by_pieces(experts.rows(), work));
        CHECK(quant::test::is_same(experts.output(), experts.one_after_the_other()));
      }
    }
  }
}

TEST_CASE("what experts give by pieces does not depend on how many threads there are", "[experts]") {
  const Kind kinds[] = {{SchemeId::kSymInt8, Dtype::kBfloat16, quant::Arithmetic::kMixed},
                        {SchemeId::kSymInt4, Dtype::kBfloat16, quant::Arithmetic::kFloat},
                        {SchemeId::kAsymInt4, Dtype::kBfloat16, quant::Arithmetic::kInt8}};
  for (const Kind& kind : kinds) {
    INFO(scheme(kind.scheme).name);
    const Experts alone(2, {63, 5, 400, 33, 20}, kind), together(2, {63, 5, 400, 33, 20}, kind);
    ExpertPiecesWork work;
    const auto by_threads = [&](int threads, const Experts& experts) {
      const quant::test::MaxThreads those(threads);
      return multiply_by_pieces(experts.rows(), work);
    };
    const bool is_by_pieces = by_threads(1, alone);
    CHECK(by_threads(3, together) == is_by_pieces);  // a level without such kernels refuses both
    if (is_by_pieces) CHECK(quant::test::is_same(alone.output(), together.output()));
  }
}

TEST_CASE("pieces of experts are left alone where they are few, or products wake threads of their own", "[experts]") {
  ExpertPiecesWork work;
  const auto are_taken = [&](const Experts& experts, int threads) {
    const quant::test::MaxThreads those(threads);
    return multiply_by_pieces(experts.rows(), work);
  };
  CHECK(are_taken(Experts(2, {40}), 1));
  CHECK(!are_taken(Experts(2, {40}), 2));  // who would wait for the other
  CHECK(!are_taken(Experts(2, {500, 40}), 100));
  CHECK(!are_taken(Experts(2, {40, 1, 2, 3}), 1));
  Experts wide(2, {40});
  for (quant::Product& input : wide.inputs()) input.weight.out_features = 16 << 10;  // nothing reads it
  CHECK(!are_taken(wide, 1));
  Experts dense(2, {40});
  dense.inputs()[1].weight.scheme = nullptr;
  CHECK(!are_taken(dense, 1));
}

TEST_CASE("pieces of experts look at the watch between them", "[experts]") {
  const quant::test::MaxThreads two(2);
  constexpr std::int64_t kPiecesAtOnce = 8;  // four a thread
  ExpertPiecesWork work;
  const Experts experts(2, {40, 300});
  std::int64_t looks = 0;
  std::stop_source stop;
  const PassWatch watch(stop.get_token(), {}, /*products=*/1000, [&] { ++looks; });
  REQUIRE(multiply_by_pieces(experts.rows(), work));
  const auto pieces = static_cast<std::int64_t>(work.pieces.size());
  REQUIRE(pieces > kPiecesAtOnce);
  CHECK(looks == (pieces + kPiecesAtOnce - 1) / kPiecesAtOnce);
  CHECK(quant::test::is_same(experts.output(), experts.one_after_the_other()));
  stop.request_stop();
  CHECK_THROWS_AS(multiply_by_pieces(experts.rows(), work), Error);
}

}  // namespace
}  // namespace halfbyte::models::cpu
