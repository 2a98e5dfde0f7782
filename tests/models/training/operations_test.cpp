// Gradients of each operation on the way of training, against differences: in double where it can be computed there,
// else of what modules give in float32, added up in double.
#include "tests/catch.h"

#include <functional>

#include "models/modules/decoder.h"
#include "models/modules/gated_delta.h"
#include "models/modules/rotary.h"
#include "models/modules/routing.h"
#include "models/training/cross_entropy.h"
#include "models/training/documents.h"
#include "tests/models/training/trained_family.h"

namespace halfbyte {
namespace {

using models::ModelConfig;
using tests::drawn;
using tests::slope;
using tests::Trained;
using tests::TrainedFamily;
using Tensors = std::vector<at::Tensor>;

constexpr double kError = 1e-3;

// Of results, with weights that are drawn.
at::Tensor weighed(const Tensors& results) {
  at::Tensor out = at::zeros({}, at::kDouble);
  for (const at::Tensor& one : results)
    out = out + (one.to(at::kDouble) * drawn(one.sizes(), 99).to(at::kDouble)).sum();
  return out;
}

// Gradients in float32, less differences in double, of moves of each operand; in parts of the gradients' size.
double worst_error(const Tensors& operands, const std::function<Tensors(const Tensors&)>& f) {
  Tensors leaves, wide;
  for (const at::Tensor& one : operands) {
    leaves.push_back(one.clone().requires_grad_(true));
    wide.push_back(one.to(at::kDouble));
  }
  weighed(f(leaves)).backward();
  double worst = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const at::Tensor move = drawn(operands[i].sizes(), 1000 + i).to(at::kDouble), gradient = leaves[i].grad();
    const double found = slope(
        [&](double times) {
          Tensors moved = wide;
          moved[i] = moved[i] + move * times;
          return weighed(f(moved)).item<double>();
        },
        1e-4);
    const double said = (gradient.to(at::kDouble) * move).sum().item<double>();
    worst = std::max(worst, std::abs(said - found) / gradient.norm().item<double>());
  }
  return worst;
}

at::Tensor logits_of(at::Tensor products, const ModelConfig& config) {
  products = products * config.logit_scale;
  return config.logit_softcap == 0.0 ? products : (products / config.logit_softcap).tanh() * config.logit_softcap;
}

}  // namespace

TEST_CASE("cross entropy of a block of logits, and its gradients, are those of the formula in double", "[training]") {
  for (const auto& [scale, softcap] : {std::pair(1.0, 0.0), {0.3, 0.0}, {1.0, 5.0}, {0.5, 3.0}}) {
    INFO("scale " << scale << ", softcap " << softcap);
    ModelConfig config;
    config.logit_scale = scale;
    config.logit_softcap = softcap;
    const at::Tensor products = drawn({11, 301}, 1) * 4, labels = at::arange(11, at::kLong) * 27;
    const auto wanted = [&](const at::Tensor& x) {
      const at::Tensor shares = logits_of(x, config).log_softmax(-1);
      return -shares.gather(1, labels.unsqueeze(1)).sum().item<double>();
    };
    at::Tensor gradients = products.clone();
    const double loss = training::cross_entropy_(gradients, labels, config, 0.25);
    CHECK(loss == Approx(wanted(products.to(at::kDouble))).epsilon(1e-6));
    for (const std::uint64_t seed : {2, 3, 4}) {
      const at::Tensor move = drawn(products.sizes(), seed).to(at::kDouble);
      const double found = slope([&](double times) { return wanted(products.to(at::kDouble) + move * times); }, 1e-3);
      const double said = (gradients.to(at::kDouble) * move).sum().item<double>() / 0.25;
      CHECK(std::abs(said - found) < kError * gradients.norm().item<double>() / 0.25);
    }
  }
}

TEST_CASE("logits that are large, or a vocabulary of one, have finite gradients", "[training]") {
  at::Tensor products = at::zeros({2, 4}, at::kFloat);
  products[0][1] = 3e38F;
  products[1][2] = -3e38F;
  const at::Tensor labels = at::ones({2}, at::kLong);
  const double loss = training::cross_entropy_(products, labels, ModelConfig{}, 1);
  CHECK(loss == Approx(std::log(3.0)));
  CHECK(products.isfinite().all().item<bool>());
  at::Tensor one = at::full({3, 1}, 7.0F);
  CHECK(training::cross_entropy_(one, at::zeros({3}, at::kLong), ModelConfig{}, 1) == 0.0);
  CHECK(at::equal(one, at::zeros({3, 1})));
}

TEST_CASE("gradients through the rotary embedding are those of differences in double", "[training]") {
  const at::Tensor angles = drawn({2, 5, 1, 4}, 1);
  for (const bool is_interleaved : {false, true}) {
    for (const std::int64_t head_dim : {8, 12}) {  // all of a head turns, or a part
      const double error = worst_error({drawn({2, 5, 3, head_dim}, 2)}, [&](const Tensors& of) {
        const auto type = of[0].scalar_type();
        return Tensors{models::rotate(of[0], angles.cos().to(type), angles.sin().to(type), is_interleaved)};
      });
      INFO("interleaved " << is_interleaved << ", of " << head_dim);
      CHECK(error < kError);
    }
  }
}

TEST_CASE("gradients through the gated delta rule are those of differences in double", "[training]") {
  const auto unit = [](const at::Tensor& x) { return x / x.norm(2, -1, true); };
  const Tensors operands = {unit(drawn({2, 3, 13, 8}, 1)),  unit(drawn({2, 3, 13, 8}, 2)), drawn({2, 3, 13, 6}, 3),
                            drawn({2, 3, 13}, 4).sigmoid(), -drawn({2, 3, 13}, 5).abs(),   drawn({2, 3, 8, 6}, 6)};
  for (const std::int64_t chunk : {1, 4, 13, 64}) {
    INFO("chunk " << chunk);
    CHECK(worst_error(operands, [&](const Tensors& of) {
            const auto out = models::gated_delta({of[0], of[1], of[2], of[3], of[4]}, of[5], chunk);
            return Tensors{out.read, out.state};
          }) < kError);
  }
}

TEST_CASE("gradients of experts' shares are those of differences in double", "[training]") {
  models::MoeConfig plain{.num_experts = 12, .experts_per_token = 3};
  models::MoeConfig grouped = plain, mixed = plain, whole = plain;
  grouped.scoring = models::Scoring::kSigmoid;
  grouped.groups = 4;
  grouped.chosen_groups = 2;
  grouped.scale = 2.5;
  mixed.scoring = models::Scoring::kSparseMixer;
  mixed.experts_per_token = 2;
  mixed.jitter = 0.1;
  whole.is_normalised = false;
  for (const models::MoeConfig& config : {plain, grouped, mixed, whole}) {
    const at::Tensor correction = drawn({12}, 8) * 0.01;
    INFO("scoring " << static_cast<int>(config.scoring) << ", groups " << config.groups);
    CHECK(worst_error({drawn({9, 12}, 7)}, [&](const Tensors& of) {
            return Tensors{models::route(of[0], correction.to(of[0].scalar_type()), config).shares};
          }) < kError);
  }
}

namespace {

// A module's gradients of what it is given and of its own parameters. A move across a border, as to other experts, has
// no slope: one of a few directions meets none.
double error_of(const torch::nn::Module& module, Tensors given, const std::function<Tensors(const Tensors&)>& f) {
  std::vector<Trained> moved;
  for (at::Tensor& one : given) moved.push_back({"given", {one.requires_grad_(true)}});
  for (const auto& item : module.named_parameters()) {
    at::Tensor parameter = item.value();
    parameter.mutable_grad() = at::Tensor();
    moved.push_back({item.key(), {parameter}});
  }
  weighed(f(given)).backward();
  const at::NoGradGuard without;
  double size = 0;
  for (const at::Tensor& one : f(given)) size += one.square().sum().item<double>();
  double best = 1e9;
  for (const std::uint64_t seed : {1000, 2000, 3000, 4000, 5000}) {
    const double error = tests::error_of_gradients(
        moved, [&] { return weighed(f(given)).item<double>(); }, {2e-3 * std::sqrt(size), 2e-3}, seed);
    best = std::min(best, error);
    if (best < kError) break;
  }
  return best;
}

at::Tensor stream_of(const TrainedFamily& family, const training::Sequence& row, std::uint64_t seed) {
  return drawn({1, static_cast<std::int64_t>(row.tokens.size()), family.model().config().hidden_size}, seed);
}

void check_mixer(const TrainedFamily& family, std::size_t index, const training::Sequence& row) {
  const models::DecoderLayer& layer = *family.model().decoder().layers()[index];
  const training::Sequence* const rows[] = {&row};
  const training::DocumentPass documents(family.model(), rows);
  const std::int64_t keys_of = family.model().config().layers[index].keys_of;
  Tensors given = {stream_of(family, row, index)};
  if (keys_of >= 0) {
    const models::AttentionSettings& attention = layer.attention()->settings();
    const auto tokens = static_cast<std::int64_t>(row.tokens.size());
    for (const std::uint64_t seed : {50, 51})
      given.push_back(drawn({1, attention.kv_heads, tokens, attention.head_dim}, seed));
  }
  INFO("mixer of layer " << index << ", documents of " << row.lengths.size() << " in " << row.tokens.size());
  CHECK(error_of(layer.mixer(), given, [&](const Tensors& of) {
          std::vector<models::Session> sessions;
          models::Pass pass = documents.begin(sessions);
          std::map<std::int64_t, models::SeenKeys> shared;
          if (keys_of >= 0) shared[keys_of] = {of[1], of[2]};
          pass.shared_keys = &shared;
          return Tensors{layer.mixer().forward(of[0], pass)};
        }) < kError);
}

}  // namespace

TEST_CASE("gradients through every family's mixers, MLPs, experts and norms are those of differences", "[training]") {
  for (const auto& path : tests::all_families()) {
    const TrainedFamily family(path);
    INFO(path.filename().string());
    const auto row = [&](const std::vector<std::int64_t>& lengths) { return family.sequence(lengths, 5); };
    const bool may_pack = training::can_pack(family.model().config());
    const auto layers = family.model().decoder().layers();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      check_mixer(family, i, row({37}));
      check_mixer(family, i, row({3}));
      check_mixer(family, i, row({1}));
      if (may_pack) check_mixer(family, i, row({35, 1, 20}));
      INFO("layer " << i);
      const at::Tensor x = stream_of(family, row({6}), i);
      CHECK(error_of(layers[i]->feed_forward(), {x.clone()},
                     [&](const Tensors& of) { return Tensors{layers[i]->feed_forward().forward(of[0])}; }) < kError);
      for (const models::Norm* norm : {layers[i]->input_norm(), layers[i]->attention_output_norm(),
                                       layers[i]->mlp_norm(), layers[i]->mlp_output_norm()}) {
        if (!norm) continue;
        CHECK(error_of(*norm, {x.clone()}, [&](const Tensors& of) { return Tensors{norm->forward(of[0])}; }) < kError);
      }
    }
  }
}

}  // namespace halfbyte
