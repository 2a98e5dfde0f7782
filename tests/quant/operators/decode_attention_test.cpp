// A decoded token's attention: what its definition says in double precision, in every dtype; and what does not fit is
// refused by name.
#include "tests/catch.h"

#include <cmath>

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <halfbyte/error.h>
#include <halfbyte/operators.h>

#include "quant/operators/implementations.h"
#include "tests/quant/operators/packed.h"

namespace halfbyte::operators {
namespace {

constexpr double kScale = 0.21;

struct Operands {
  at::Tensor query, keys, values;
};

Operands drawn(std::int64_t batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t tokens, std::int64_t size,
               at::ScalarType type) {
  const auto values = [&](std::int64_t of, std::int64_t rows) { return at::randn({batch, of, rows, size}).to(type); };
  return {values(heads, 1), values(kv_heads, tokens), values(kv_heads, tokens)};
}

// Shape: (batch, 1, heads, head_dim), in float64.
at::Tensor defined(const Operands& given) {
  const std::int64_t share = given.query.size(1) / given.keys.size(1);
  const auto of_heads = [&](const at::Tensor& tensor) { return tensor.to(at::kDouble).repeat_interleave(share, 1); };
  const at::Tensor scores = at::matmul(given.query.to(at::kDouble), of_heads(given.keys).transpose(2, 3)) * kScale;
  return at::matmul(at::softmax(scores, -1), of_heads(given.values)).transpose(1, 2);
}

at::Tensor run(const Operands& given) { return decode_attention(given.query, given.keys, given.values, kScale); }

TEST_CASE("a decoded token's attention is what its definition says", "[operators]") {
  for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {6, 6}, {6, 2}, {8, 1}}) {
    for (const std::int64_t tokens : {1, 2, 63, 64, 65, 200, 1100}) {
      for (const std::int64_t size : {8, 20, 64}) {
        for (const auto& [type, bound] : {std::pair{at::kFloat, 3e-6}, {at::kHalf, 2e-3}, {at::kBFloat16, 1e-2}}) {
          const Operands given = drawn(2, heads, kv_heads, tokens, size, type);
          INFO(heads << "/" << kv_heads << " heads of " << size << ", " << tokens << " tokens, " << type);
          const at::Tensor found = run(given);
          CHECK(found.scalar_type() == type);
          CHECK(found.sizes() == at::IntArrayRef({2, 1, heads, size}));
          CHECK(relative_difference(found, defined(given)) < bound);
        }
      }
    }
  }
}

TEST_CASE("a decoded token's attention takes keys and values however they lie", "[operators]") {
  const Operands given = drawn(3, 4, 2, 70, 16, at::kFloat);
  const auto turned = [](const at::Tensor& tensor) { return tensor.transpose(1, 2).contiguous().transpose(1, 2); };
  CHECK(run({turned(given.query), turned(given.keys), turned(given.values)}).equal(run(given)));
  const auto alone = [](const at::Tensor& tensor) { return tensor.narrow(0, 1, 1); };
  CHECK(run({alone(given.query), alone(given.keys), alone(given.values)}).equal(alone(run(given))));
  // With room behind each head's tokens, and as one sequence's for all.
  const auto with_room = [](const at::Tensor& tensor) {
    const at::Tensor all = at::full({3, 2, 90, 16}, NAN);
    all.narrow(2, 7, 70).copy_(tensor);
    return all.narrow(2, 7, 70);
  };
  const Operands roomy{given.query, with_room(given.keys), with_room(given.values)};
  CHECK(run(roomy).equal(run(given)));
  CHECK(run({alone(given.query), alone(roomy.keys), alone(roomy.values)}).equal(alone(run(given))));
  const auto for_all = [&](const at::Tensor& tensor) { return alone(tensor).expand({3, 2, 70, 16}); };
  const Operands shared{given.query, for_all(roomy.keys), for_all(roomy.values)};
  CHECK(run(shared).equal(run({given.query, shared.keys.contiguous(), shared.values.contiguous()})));
  const at::Tensor mask = at::ones({3, 1, 1, 70}, at::kBool);
  mask.narrow(3, 0, 9).fill_(false);
  CHECK(decode_attention(given.query, roomy.keys, roomy.values, kScale, mask)
            .equal(decode_attention(given.query, given.keys, given.values, kScale, mask)));
  const at::Tensor composite = composite::decode_attention(given.query, given.keys, given.values, kScale, std::nullopt);
  CHECK(relative_difference(composite, run(given)) < 1e-5);
}

TEST_CASE("a decoded token's attention reads the keys that its mask lets through, and no others", "[operators]") {
  const std::int64_t tokens = 150;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Operands given = drawn(3, 4, 2, tokens, 16, type);
    at::Tensor mask = at::zeros({3, 1, 1, tokens}, at::kBool), several = mask.clone();
    const std::pair<std::int64_t, std::int64_t> seen[] = {{0, tokens}, {37, tokens}, {65, 130}};
    for (std::int64_t row = 0; row < 3; ++row)
      mask.select(0, row).narrow(2, seen[row].first, seen[row].second - seen[row].first).fill_(true);
    // What is not seen may be anything.
    Operands other = given;
    const auto spoilt = [&](const at::Tensor& tensor) {
      return tensor.masked_fill(mask.transpose(2, 3).logical_not(), NAN);
    };
    other.keys = spoilt(given.keys), other.values = spoilt(given.values);
    const at::Tensor found = decode_attention(other.query, other.keys, other.values, kScale, mask);
    for (std::int64_t row = 0; row < 3; ++row) {
      const auto of = [&](const at::Tensor& tensor) {
        return tensor.narrow(0, row, 1).narrow(2, seen[row].first, seen[row].second - seen[row].first);
      };
      INFO(type << ", row " << row);
      CHECK(found.narrow(0, row, 1).equal(run({given.query.narrow(0, row, 1), of(given.keys), of(given.values)})));
    }
    CHECK(relative_difference(composite::decode_attention(given.query, given.keys, given.values, kScale, mask), found) <
          1e-2);
    const at::Tensor of_all = mask.narrow(0, 1, 1);
    CHECK(
        decode_attention(given.query, given.keys, given.values, kScale, of_all)
            .equal(decode_attention(given.query, given.keys, given.values, kScale, of_all.expand({3, 1, 1, tokens}))));
    const at::Tensor of_none = decode_attention(given.query, given.keys, given.values, kScale, several);
    CHECK(of_none.equal(at::zeros_like(of_none)));
    // In two pieces: as the composite has it.
    several.narrow(3, 0, 5).fill_(true);
    several.narrow(3, 90, 60).fill_(true);
    const auto picked = [](const at::Tensor& tensor) {
      return at::cat({tensor.narrow(2, 0, 5), tensor.narrow(2, 90, 60)}, 2);
    };
    CHECK(relative_difference(decode_attention(given.query, given.keys, given.values, kScale, several),
                              run({given.query, picked(given.keys), picked(given.values)})) < 1e-2);
  }
}

TEST_CASE("a mask that a decoded token's attention cannot take is refused by name", "[operators]") {
  const Operands given = drawn(2, 4, 2, 5, 8, at::kFloat);
  for (const at::Tensor& mask : {at::ones({2, 1, 1, 4}, at::kBool), at::ones({3, 1, 1, 5}, at::kBool),
                                 at::ones({2, 5}, at::kBool), at::ones({2, 1, 1, 5})}) {
    CHECK_THROWS_WITH(
        decode_attention(given.query, given.keys, given.values, kScale, mask),
        Catch::Contains("halfbyte::decode_attention: mask is") && Catch::Contains("(batch or 1, 1, 1, 5)"));
  }
}

TEST_CASE("a decoded token's attention has the gradients of its definition", "[operators]") {
  Operands given = drawn(1, 4, 2, 9, 8, at::kFloat), other = given;
  for (Operands* one : {&given, &other}) {
    for (at::Tensor* tensor : {&one->query, &one->keys, &one->values}) *tensor = tensor->clone().requires_grad_();
  }
  run(given).sum().backward();
  defined(other).sum().backward();
  CHECK(relative_difference(given.query.grad(), other.query.grad()) < 1e-5);
  CHECK(relative_difference(given.keys.grad(), other.keys.grad()) < 1e-5);
  CHECK(relative_difference(given.values.grad(), other.values.grad()) < 1e-5);
}

TEST_CASE("what a decoded token's attention cannot take is refused by name", "[operators]") {
  const Operands fits = drawn(2, 6, 2, 5, 8, at::kFloat);
  const auto refusal = [](const Operands& given) {
    try {
      run(given);
    } catch (const Error& error) {
      CHECK((error.code() == ErrorCode::kContract || error.code() == ErrorCode::kInvalidArgument));
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  const auto& [query, keys, values] = fits;
  CHECK_THAT(refusal({query.squeeze(2), keys, values}),
             Catch::Contains("halfbyte::decode_attention: query has shape [2, 6, 8]"));
  CHECK_THAT(refusal({query.expand({2, 6, 3, 8}), keys, values}), Catch::Contains("[2, 6, 3, 8]"));
  CHECK_THAT(refusal({query, keys.narrow(0, 0, 1), values}), Catch::Contains("keys have shape [1, 2, 5, 8]"));
  CHECK_THAT(refusal({query, keys.narrow(3, 0, 4), values}), Catch::Contains("keys have shape [2, 2, 5, 4]"));
  CHECK_THAT(refusal({query, keys.narrow(2, 0, 0), values}), Catch::Contains("keys have shape [2, 2, 0, 8]"));
  CHECK_THAT(refusal({query.narrow(1, 0, 5), keys, values}), Catch::Contains("5 heads do not share keys of 2"));
  CHECK_THAT(refusal({query, keys, values.narrow(2, 0, 4)}), Catch::Contains("values have shape [2, 2, 4, 8]"));
  CHECK_THAT(refusal({query, keys.to(at::kMeta), values}), Catch::Contains("keys"));
  CHECK_THAT(refusal({query, keys.to(at::kDouble), values}), Catch::Contains("keys is float64"));
  CHECK_THAT(refusal({query.clone().requires_grad_(), keys, values.to(at::kDouble)}),
             Catch::Contains("values is float64"));
}

}  // namespace
}  // namespace halfbyte::operators
