// What mixes tokens otherwise than by attention, and attention by latent vectors, beside slow references.
#include "tests/catch.h"

#include <ATen/ATen.h>

#include "models/modules/causal_convolution.h"
#include "models/modules/gated_delta.h"
#include "models/modules/recurrent_state.h"

namespace halfbyte::models {
namespace {

at::Tensor drawn(at::IntArrayRef shape, std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat));
}

DeltaTokens tokens_of(std::int64_t rows, std::int64_t heads, std::int64_t count, std::int64_t key_dim,
                      std::int64_t value_dim) {
  const auto unit = [](const at::Tensor& x) { return x / x.norm(2, -1, true); };
  return {unit(drawn({rows, heads, count, key_dim}, 1)), unit(drawn({rows, heads, count, key_dim}, 2)),
          drawn({rows, heads, count, value_dim}, 3), drawn({rows, heads, count}, 4).sigmoid(),
          -drawn({rows, heads, count}, 5).abs()};
}

// Token by token in double, as the rule is written: the state decays, what the key reads there is taken off the value,
// and what remains is written to where the key points.
DeltaResult slow_delta(const DeltaTokens& t, const at::Tensor& state) {
  const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble).contiguous(); };
  const at::Tensor queries = wide(t.queries), keys = wide(t.keys), values = wide(t.values), rates = wide(t.rates);
  const at::Tensor decays = wide(t.log_decays).exp();
  at::Tensor s = wide(state).clone(), read = at::zeros_like(values);
  const std::int64_t rows = keys.size(0), heads = keys.size(1), count = keys.size(2);
  for (std::int64_t i = 0; i < rows * heads * count; ++i) {
    const std::int64_t row = i / count / heads, head = i / count % heads, token = i % count;
    at::Tensor own = s[row][head];
    own.mul_(decays[row][head][token]);
    const at::Tensor key = keys[row][head][token];
    const at::Tensor correction = (values[row][head][token] - at::mv(own.t(), key)) * rates[row][head][token];
    own.add_(at::outer(key, correction));
    read[row][head][token].copy_(at::mv(own.t(), queries[row][head][token]));
  }
  return {read, s};
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

TEST_CASE("the gated delta rule in chunks, and token by token, is what its definition says", "[modules][mixers]") {
  const at::Tensor state = drawn({2, 3, 8, 6}, 6);
  const DeltaTokens tokens = tokens_of(2, 3, 37, 8, 6);
  const DeltaResult wanted = slow_delta(tokens, state);
  for (const std::int64_t chunk : {1, 2, 16, 37, 64}) {
    INFO("chunk " << chunk);
    const DeltaResult found = gated_delta(tokens, state, chunk);
    CHECK(largest_difference(found.read, wanted.read) < 1e-5);
    CHECK(largest_difference(found.state, wanted.state) < 1e-5);
  }
  at::Tensor kept = state;
  for (std::int64_t i = 0; i < 37; ++i) {
    const auto one = [&](const at::Tensor& x) { return x.narrow(2, i, 1); };
    const DeltaResult found = gated_delta(
        {one(tokens.queries), one(tokens.keys), one(tokens.values), one(tokens.rates), one(tokens.log_decays)}, kept);
    CHECK(largest_difference(found.read, wanted.read.narrow(2, i, 1)) < 1e-5);
    kept = found.state;
  }
}

TEST_CASE("a state that decays at once forgets, and is finite", "[modules][mixers]") {
  DeltaTokens tokens = tokens_of(1, 2, 70, 4, 4);
  tokens.log_decays = tokens.log_decays.mul(0).sub(300);
  const at::Tensor state = drawn({1, 2, 4, 4}, 6) * 1e6;
  const DeltaResult found = gated_delta(tokens, state), wanted = slow_delta(tokens, state);
  CHECK(found.read.isfinite().all().item<bool>());
  CHECK(largest_difference(found.read, wanted.read) < 1e-5);
}

TEST_CASE("a recurrent state changes when a pass is committed, and forks share it until then", "[modules][mixers]") {
  RecurrentState state({{2}, {2, 2}}, at::kCPU);
  const at::Tensor first = drawn({3, 2}, 1), second = drawn({2}, 2);
  state.keep(0, first[1]);
  CHECK(state.before(0).abs().max().item<float>() == 0.0f);
  state.commit(1);
  CHECK(at::equal(state.before(0), first[1]));
  CHECK(state.bytes() == 6 * 4);  // without the rows beside it
  const auto fork = state.fork();
  const auto& other = static_cast<const RecurrentState&>(*fork);
  CHECK(other.before(0).data_ptr() == state.before(0).data_ptr());
  state.keep(0, second);
  state.commit(2);
  CHECK(at::equal(state.before(0), second));
  CHECK(at::equal(other.before(0), first[1]));
  state.keep(0, first[0]);  // a pass that is not committed
  state.cut(2);
  state.commit(3);
  CHECK(at::equal(state.before(0), second));
  CHECK(state.least(3) == 3);
  state.cut(0);
  CHECK(state.before(0).abs().max().item<float>() == 0.0f);
  CHECK(at::equal(other.before(0), first[1]));
}

TEST_CASE("a causal convolution in pieces is the one of the whole", "[modules][mixers]") {
  torch::nn::Module parent;
  WeightSet weights;
  const at::Tensor kernel = drawn({5, 1, 4}, 1), bias = drawn({5}, 2), x = drawn({2, 9, 5}, 3);
  weights.add(&Naming::convolution_kernel, {kernel, bias});
  const CausalConvolution convolution(parent, weights, &Naming::convolution_kernel, Naming{});
  const at::Tensor padded = at::constant_pad_nd(x.transpose(1, 2), {3, 0});
  const at::Tensor wanted =
      at::conv1d(padded, kernel, bias, at::IntArrayRef{1}, at::IntArrayRef{0}, at::IntArrayRef{1}, 5).transpose(1, 2);
  RecurrentState::Shape kept = convolution.kept();
  kept.insert(kept.begin(), 2);
  at::Tensor before = at::zeros(kept);
  std::int64_t begin = 0;
  for (const std::int64_t count : {1, 2, 5, 1}) {  // fewer than it looks back, and more
    const auto [found, after] = convolution.forward(x.narrow(1, begin, count), before);
    CHECK(largest_difference(found, wanted.narrow(1, begin, count)) < 1e-5);
    before = after;
    begin += count;
  }
}

}  // namespace
}  // namespace halfbyte::models
