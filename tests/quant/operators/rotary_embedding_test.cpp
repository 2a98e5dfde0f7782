// Rotary embedding: bit for bit what LibTorch's operators give one by one, however heads lie; its gradients; what does
// not fit is refused by name.
#include "tests/catch.h"

#include <cstring>

#include <ATen/ops/randn.h>

#include <halfbyte/error.h>
#include <halfbyte/operators.h>

#include "quant/operators/implementations.h"
#include "tests/quant/operators/packed.h"

namespace halfbyte::operators {
namespace {

struct Turning {
  at::Tensor query, key, cosine, sine;
};

// Heads as a product's rows have them. Shapes: tables (rows, tokens, turned).
Turning drawn_heads(std::int64_t batch, std::int64_t tokens, std::int64_t size, std::int64_t turned, std::int64_t rows,
                    at::ScalarType type) {
  const auto heads = [&](std::int64_t count) {
    return (at::randn({batch, tokens, count, size}) * 3).to(type).transpose(1, 2);
  };
  return {heads(6), heads(2), at::randn({rows, tokens, turned}).to(type), at::randn({rows, tokens, turned}).to(type)};
}

bool have_equal_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

TEST_CASE("rotary embedding is bit for bit what LibTorch's operators give one by one", "[operators]") {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const auto& [batch, tokens] : {std::pair{1, 1}, {3, 1}, {1, 9}, {2, 70}}) {
      for (const auto& [size, turned] : {std::pair{64, 64}, {2, 2}, {20, 20}, {80, 32}}) {
        for (const int rows : {1, batch}) {
          Turning given = drawn_heads(batch, tokens, size, turned, rows, type);
          INFO(type << ", " << batch << " of " << tokens << " tokens, " << turned << " of " << size << ", " << rows);
          for (const bool is_contiguous : {false, true}) {
            if (is_contiguous) given.query = given.query.contiguous(), given.key = given.key.contiguous();
            const auto [query, key] = rotary_embedding(given.query, given.key, given.cosine, given.sine);
            const auto [other_query, other_key] =
                composite::rotary_embedding(given.query, given.key, given.cosine, given.sine);
            CHECK(have_equal_bits(query, other_query));
            CHECK(have_equal_bits(key, other_key));
            CHECK(query.transpose(1, 2).is_contiguous());
            CHECK(other_query.transpose(1, 2).is_contiguous());
          }
        }
      }
    }
  }
}

TEST_CASE("rotary embedding turns by angles, and leaves what is behind the turned values", "[operators]") {
  const at::Tensor angles = at::randn({1, 3, 4});
  const at::Tensor both = at::cat({angles, angles}, -1);
  const Turning given = drawn_heads(1, 3, 10, 8, 1, at::kFloat);
  const auto [query, key] = rotary_embedding(given.query, given.key, both.cos(), both.sin());
  CHECK(relative_difference(query.square().sum(-1), given.query.square().sum(-1)) < 1e-5);
  CHECK(query.narrow(3, 8, 2).equal(given.query.narrow(3, 8, 2)));
  const auto [back, key_back] = rotary_embedding(query, key, both.cos(), both.sin().neg());
  CHECK(relative_difference(back, given.query) < 1e-5);
  CHECK(relative_difference(key_back, given.key) < 1e-5);
}

TEST_CASE("rotary embedding takes heads however they lie", "[operators]") {
  const Turning given = drawn_heads(2, 5, 8, 8, 2, at::kFloat);
  const at::Tensor fused = at::randn({2, 5, 10, 8}), every = at::randn({2, 2, 5, 16});
  const at::Tensor query = fused.narrow(2, 3, 6).transpose(1, 2), key = every.slice(3, 0, 16, 2);
  const auto [found, found_key] = rotary_embedding(query, key, given.cosine, given.sine);
  const auto [wanted, wanted_key] = rotary_embedding(query.contiguous(), key.contiguous(), given.cosine, given.sine);
  CHECK(have_equal_bits(found, wanted));
  CHECK(have_equal_bits(found_key, wanted_key));
  const at::Tensor same = given.query.narrow(1, 0, 1).expand({2, 6, 5, 8});
  const auto [of_same, of_key] = rotary_embedding(same, given.key, given.cosine, given.sine);
  CHECK(
      have_equal_bits(of_same, std::get<0>(rotary_embedding(same.contiguous(), given.key, given.cosine, given.sine))));
}

TEST_CASE("rotary embedding has gradients, and takes no heads and no tokens", "[operators]") {
  const Turning given = drawn_heads(1, 3, 8, 8, 1, at::kFloat);
  const at::Tensor query = given.query.contiguous().requires_grad_(), other = query.detach().clone().requires_grad_();
  std::get<0>(rotary_embedding(query, given.key, given.cosine, given.sine)).square().sum().backward();
  std::get<0>(composite::rotary_embedding(other, given.key, given.cosine, given.sine)).square().sum().backward();
  CHECK(query.grad().equal(other.grad()));
  const Turning none = drawn_heads(2, 0, 8, 8, 1, at::kFloat);
  CHECK(std::get<0>(rotary_embedding(none.query, none.key, none.cosine, none.sine)).numel() == 0);
}

TEST_CASE("what rotary embedding cannot take is refused by name", "[operators]") {
  const Turning fits = drawn_heads(2, 3, 8, 8, 1, at::kFloat);
  const auto refusal = [](const Turning& given) {
    try {
      rotary_embedding(given.query, given.key, given.cosine, given.sine);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK(refusal(fits) == "nothing");
  Turning given = fits;
  given.key = at::randn({2, 2, 4, 8});
  CHECK_THAT(refusal(given), Catch::Contains("key has shape [2, 2, 4, 8]"));
  given = fits;
  given.cosine = given.sine = at::randn({1, 3, 7});
  CHECK_THAT(refusal(given), Catch::Contains("even number"));
  given = fits;
  given.cosine = given.sine = at::randn({1, 3, 10});
  CHECK_THAT(refusal(given), Catch::Contains("query has shape"));
  given = fits;
  given.sine = at::randn({2, 3, 8});
  CHECK_THAT(refusal(given), Catch::Contains("sine has shape [2, 3, 8]"));
  given = fits;
  given.key = given.key.to(at::kHalf);
  CHECK_THAT(refusal(given), Catch::Contains("key is Half, query Float"));
  given = fits;
  given.query = given.query.to(at::kDouble);
  CHECK_THAT(refusal(given), Catch::Contains("query"));
}

}  // namespace
}  // namespace halfbyte::operators
