// Experts by pieces against their products one after the other.
#include "models/cpu/expert_pieces.h"

#include <cstdint>
#include <optional>
#include <stop_token>
#include <vector>

#include <halfbyte/error.h>

#include "models/cpu/gates.h"
#include "models/sessions/pass_watch.h"
#include "tests/catch.h"
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

Packed matrix(std::int64_t rows, std::int64_t in_features, unsigned seed) {
  return quant::test::quantized(gaussian(static_cast<std::size_t>(rows * in_features), seed), in_features,
                                {&scheme(SchemeId::kSymInt4), 32, quant::Search::kAbsmax, Dtype::kBfloat16});
}

// As many as there are counts of tokens.
class Experts {
 public:
  Experts(std::size_t inputs_each, const std::vector<std::int64_t>& counts)
      : input_(gaussian(static_cast<std::size_t>(kInputTokens * kHidden), 1, 1.0f)) {
    for (const std::int64_t count : counts) {
      const auto seed = static_cast<unsigned>(10 * experts_.size());
      Expert& own = experts_.emplace_back(Expert{{}, matrix(kHidden, kSize, seed + 2), {}});
      for (std::size_t i = 0; i < inputs_each; ++i)
        own.inputs.push_back(
            matrix(static_cast<std::int64_t>(2 / inputs_each) * kSize, kHidden, seed + 3 + static_cast<unsigned>(i)));
      for (std::int64_t i = 0; i < count; ++i) own.tokens.push_back((i * 7 + count) % kInputTokens);
      rows_ += count;
    }
    output_.resize(static_cast<std::size_t>(rows_ * kHidden), NAN);
    std::int64_t row = 0;
    for (const Expert& own : experts_) {
      for (const Packed& input : own.inputs) inputs_.push_back(product(input, own));
      for (std::size_t i = inputs_.size() - inputs_each; i < inputs_.size(); ++i) {
        inputs_[i].arguments.input = bytes(input_);
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
  static quant::Product product(const Packed& weight, const Expert& expert) {
    return {weight.matrix(),
            {nullptr, Dtype::kFloat32, static_cast<std::int64_t>(expert.tokens.size()), nullptr, Dtype::kFloat32,
             nullptr, Dtype::kFloat32, quant::Arithmetic::kInt8}};
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
    down.arguments.input = gated({Activation::kSilu, rows, kSize, Dtype::kFloat32}, between[0].data(),
                                 each == 1 ? nullptr : between[1].data(), gated_rows);
    down.arguments.output = bytes(out);
    quant::linear(std::span(&down, 1));
    return out;
  }

  std::vector<float> input_;
  std::vector<Expert> experts_;
  std::int64_t rows_ = 0;
  std::vector<float> output_;
  std::vector<quant::Product> inputs_, downs_;
};

TEST_CASE("pieces of experts give what their products give one after the other, bit for bit", "[experts]") {
  ExpertPiecesWork work;  // kept, as a model does
  for (const std::size_t inputs_each : {2, 1}) {
    for (const auto& counts : {std::vector<std::int64_t>{40, 1, 300, 17}, {16}, {129, 128}}) {
      INFO(inputs_each << " matrices before the last, " << counts.size() << " experts");
      const Experts experts(inputs_each, counts);
      REQUIRE(multiply_by_pieces(experts.rows(), work));
      CHECK(quant::test::is_same(experts.output(), experts.one_after_the_other()));
    }
  }
}

TEST_CASE("pieces of experts are left alone where rows are few, or products wake threads of their own", "[experts]") {
  ExpertPiecesWork work;
  CHECK(!multiply_by_pieces(Experts(2, {40, 1, 2, 3}).rows(), work));
  Experts wide(2, {40});
  for (quant::Product& input : wide.inputs()) input.weight.out_features = 16 << 10;  // nothing reads it
  CHECK(!multiply_by_pieces(wide.rows(), work));
  Experts dense(2, {40});
  dense.inputs()[1].weight.scheme = nullptr;
  CHECK(!multiply_by_pieces(dense.rows(), work));
}

TEST_CASE("pieces of experts look at the watch between them", "[experts]") {
  ExpertPiecesWork work;
  const Experts experts(2, {40, 300});
  std::int64_t looks = 0;
  std::stop_source stop;
  const PassWatch watch(stop.get_token(), {}, /*products=*/1000, [&] { ++looks; });
  REQUIRE(multiply_by_pieces(experts.rows(), work));
  CHECK(looks == static_cast<std::int64_t>(work.pieces.size()));
  CHECK(quant::test::is_same(experts.output(), experts.one_after_the_other()));
  stop.request_stop();
  CHECK_THROWS_AS(multiply_by_pieces(experts.rows(), work), Error);
}

}  // namespace
}  // namespace halfbyte::models::cpu
