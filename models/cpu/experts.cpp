#include "models/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include <halfbyte/linear.h>

#include "models/cpu/costs.h"
#include "models/cpu/expert_pieces.h"
#include "models/cpu/gates.h"
#include "models/cpu/multiply.h"
#include "models/cpu/route_token.h"
#include "quant/rows_alike.h"
#include "quant/thread_pool.h"

namespace halfbyte::models::cpu {
namespace {

// Values below this many are not worth waking other threads.
constexpr std::int64_t kParallelValues = 16 << 10;
constexpr std::int64_t kParallelProducts = 256 << 10;
// Scores below this many are chosen from by one thread.
constexpr std::int64_t kParallelScores = 2 << 10;

std::size_t to_size(std::int64_t value) { return static_cast<std::size_t>(value); }

std::byte* bytes(Buffer& buffer, std::int64_t values, Dtype dtype) {
  return buffer.at_least(to_size(values * size_bytes(dtype)));
}

// What the matrices of an MLP have in common with those of its neighbours: then they are computed together.
struct MlpShape {
  std::size_t inputs = 0;  // gate and up, or one of both
  std::int64_t size = 0;   // between them and down
  Dtype input{}, between{};

  bool operator==(const MlpShape&) const = default;
};

class Experts {
 public:
  Experts(const ExpertsView& experts, const float* input, std::int64_t tokens, ExpertsWork& work,
          const ProductsView* next)
      : experts_(experts),
        config_(experts.config()),
        input_(input),
        tokens_(tokens),
        asked_(tokens * config_.experts_per_token),
        work_(work),
        next_(next) {}

  bool run(Buffer& output) {
    // Rows of a prompt are divided among experts: how many each gets says what is fastest.
    const bool are_few = quant::RowsAlike::kind() == quant::RowsKind::kFew;
    const quant::RowsAlike alike(are_few ? quant::RowsKind::kFew : quant::RowsKind::kCounted);
    const auto router = experts_.router();
    if (!router || router->weight.out_features != config_.num_experts) return false;
    hidden_ = router->weight.in_features;
    if (!route(*router)) return false;
    sort();
    if (!run_chosen() || !run_shared()) return false;
    const WorkScope work(WorkKind::kExpertRows);
    quant::mix_rows({.rows = tokens_,
                     .size = hidden_,
                     .count = config_.experts_per_token,
                     .from = work_.places.data(),
                     .shares = work_.shares.data(),
                     .input = work_.down.floats(0),
                     .beside = experts_.has_shared() ? work_.shared.floats(0) : nullptr,
                     .beside_shares = experts_.has_shared_router() ? work_.shared_shares.data() : nullptr,
                     .output = output.floats(tokens_ * hidden_)});
    return true;
  }

 private:
  // The experts of each token, and their shares.
  bool route(const quant::Product& router) {
    const std::int64_t experts = config_.num_experts, chosen = config_.experts_per_token;
    work_.scores.resize(to_size(2 * tokens_ * experts));
    work_.chosen.resize(to_size(asked_));
    work_.shares.resize(to_size(asked_));
    float* const scores = work_.scores.data();
    multiply_router(router, scores);
    const float* correction = nullptr;
    const auto values = experts_.correction();
    if (!values || (values->data && values->count != experts)) return false;
    if (values->data) {
      work_.correction.resize(to_size(experts));
      quant::convert(values->data, values->dtype, reinterpret_cast<std::byte*>(work_.correction.data()),
                     Dtype::kFloat32, experts);
      correction = work_.correction.data();
    }
    const WorkScope work(WorkKind::kExpertRows);
    quant::for_each_piece(tokens_, tokens_ * experts > kParallelScores, [&](std::int64_t token) {
      route_token({scores + token * experts, scores + (tokens_ + token) * experts, correction}, config_,
                  work_.chosen.data() + token * chosen, work_.shares.data() + token * chosen);
    });
    return true;
  }

  // A router's product, of float32. Some rows at a time, so that it is computed by the threads of the others: many
  // would go to OpenMP's, which then look for more on the cores that ours want.
  void multiply_router(const quant::Product& product, float* output) const {
    constexpr std::int64_t kRows = quant::kDirectRows;
    const std::int64_t width = product.weight.out_features;
    const WorkScope work(WorkKind::kRouter, [&] { return router_cost(product); });
    quant::for_each_piece((tokens_ + kRows - 1) / kRows, tokens_ * width * hidden_ > kParallelProducts,
                          [&](std::int64_t piece) {
                            const quant::RowsAlike alike;  // pieces are few rows, whoever computes them
                            const std::int64_t first = piece * kRows;
                            quant::Product some = product;
                            some.arguments.input = reinterpret_cast<const std::byte*>(input_ + first * hidden_);
                            some.arguments.rows = std::min(kRows, tokens_ - first);
                            some.arguments.output = reinterpret_cast<std::byte*>(output + first * width);
                            quant::linear(std::span(&some, 1));
                          });
  }

  WorkCost router_cost(quant::Product product) const {
    product.arguments.rows = tokens_;
    return cost_of(std::span(&product, 1));
  }

  // Rows in the order of their experts. Those of other ranks' experts are one row of zeros after all, without a share.
  void sort() {
    const WorkScope work(WorkKind::kExpertRows);
    const auto own = static_cast<std::int64_t>(experts_.count());
    const auto number = [&](std::int64_t i) { return work_.chosen[to_size(i)] - experts_.first(); };
    const auto is_own = [&](std::int64_t expert) { return expert >= 0 && expert < own; };
    work_.begins.assign(to_size(own) + 1, 0);
    for (std::int64_t i = 0; i < asked_; ++i) {
      if (is_own(number(i))) ++work_.begins[to_size(number(i)) + 1];
    }
    for (std::size_t e = 1; e < work_.begins.size(); ++e) work_.begins[e] += work_.begins[e - 1];
    rows_ = work_.begins.back();
    work_.next.assign(work_.begins.begin(), work_.begins.end() - 1);
    work_.places.assign(to_size(asked_), rows_);
    work_.token_of.resize(to_size(rows_));
    for (std::int64_t i = 0; i < asked_; ++i) {
      if (!is_own(number(i))) {
        work_.shares[to_size(i)] = 0.0f;
        continue;
      }
      const std::int64_t place = work_.next[to_size(number(i))]++;
      work_.places[to_size(i)] = place;
      work_.token_of[to_size(place)] = i / config_.experts_per_token;
    }
  }

  // Adds an MLP's products to the others; false where they do not fit each other.
  bool take(const ExpertProducts& mlp, MlpShape& shape) {
    shape.inputs = mlp.count;
    shape.size = mlp.down.weight.in_features;
    shape.input = mlp.inputs[0].arguments.input_dtype;
    shape.between = mlp.down.arguments.input_dtype;
    const std::int64_t width = shape.inputs == 1 ? 2 * shape.size : shape.size;
    const auto inputs = std::span(mlp.inputs).first(mlp.count);
    work_.inputs.insert(work_.inputs.end(), inputs.begin(), inputs.end());
    work_.downs.push_back(mlp.down);
    return mlp.down.weight.out_features == hidden_ && std::ranges::all_of(inputs, [&](const quant::Product& p) {
             return p.weight.in_features == hidden_ && p.weight.out_features == width &&
                    p.arguments.input_dtype == shape.input;
           });
  }

  std::int64_t rows_of(std::size_t expert) const { return work_.begins[expert + 1] - work_.begins[expert]; }

  bool run_chosen() {
    const bool are_all = rows_ == asked_;
    float* const down = work_.down.floats((are_all ? rows_ : rows_ + 1) * hidden_);
    if (!are_all) std::fill_n(down + rows_ * hidden_, hidden_, 0.0f);
    if (rows_ == 0) return true;
    MlpShape shape;
    if (!view_chosen(shape)) return false;
    fetch_next(work_.inputs, tokens_);
    set_products(shape, operand(shape.input), down);
    if (tokens_ > 1 && multiply_by_pieces({work_.inputs, work_.downs, experts_.activation()}, work_.pieces))
      return true;
    multiply_in_turn(shape);
    return true;
  }

  // All but what is between them.
  void set_products(const MlpShape& shape, const std::byte* input, float* down) {
    std::size_t chosen = 0;
    for (std::size_t expert = 0; expert < experts_.count(); ++expert) {
      if (rows_of(expert) == 0) continue;
      for (quant::Product& product : std::span(work_.inputs).subspan(chosen * shape.inputs, shape.inputs)) {
        product.arguments.rows = rows_of(expert);
        product.arguments.input = input;
        if (tokens_ > 1) product.arguments.input_rows = work_.token_of.data() + work_.begins[expert];
      }
      quant::LinearArguments& a = work_.downs[chosen++].arguments;
      a.rows = rows_of(expert);
      a.output = reinterpret_cast<std::byte*>(down + work_.begins[expert] * hidden_);
    }
  }

  // One kind of product after the other, each of all experts.
  void multiply_in_turn(const MlpShape& shape) {
    const std::int64_t width = shape.inputs == 1 ? 2 * shape.size : shape.size;
    Buffer* const outputs[] = {&work_.first, &work_.second};
    std::int64_t row = 0;
    for (std::size_t i = 0; i < work_.inputs.size(); ++i) {
      quant::LinearArguments& a = work_.inputs[i].arguments;
      const std::size_t place = i % shape.inputs;
      a.output = reinterpret_cast<std::byte*>(outputs[place]->floats(rows_ * width) + row * width);
      if (place + 1 == shape.inputs) row += a.rows;
    }
    fetch_next(work_.downs, tokens_);
    multiply_watched(work_.inputs);
    const std::byte* between = gate(rows_, shape);
    for (quant::Product& down : work_.downs) {
      down.arguments.input = between;
      between += down.arguments.rows * shape.size * size_bytes(shape.between);
    }
    fetch_next(experts_.has_shared() ? nullptr : next_, tokens_);
    multiply_watched(work_.downs);
  }

  // The matrices of the experts that are chosen, in their order.
  bool view_chosen(MlpShape& shape) {
    work_.inputs.clear();
    work_.downs.clear();
    for (std::size_t expert = 0; expert < experts_.count(); ++expert) {
      if (rows_of(expert) == 0) continue;
      const bool is_first = work_.downs.empty();
      ExpertProducts mlp;
      MlpShape own;
      if (!experts_.expert(expert, mlp) || !take(mlp, own) || (!is_first && own != shape)) return false;
      shape = own;
    }
    return true;
  }

  // The input in the dtype that products take.
  const std::byte* operand(Dtype dtype) {
    const WorkScope work(WorkKind::kExpertRows);
    const auto* const input = reinterpret_cast<const std::byte*>(input_);
    if (dtype == Dtype::kFloat32) return input;
    std::byte* const out = bytes(work_.operand, tokens_ * hidden_, dtype);
    quant::for_each_piece(tokens_, tokens_ * hidden_ > kParallelValues, [&](std::int64_t token) {
      const std::int64_t first = token * hidden_;
      quant::convert(input + first * size_bytes(Dtype::kFloat32), Dtype::kFloat32, out + first * size_bytes(dtype),
                     dtype, hidden_);
    });
    return out;
  }

  const std::byte* gate(std::int64_t rows, const MlpShape& shape) {
    const WorkScope work(WorkKind::kGates);
    return gated({experts_.activation(), rows, shape.size, shape.between}, work_.first.floats(0),
                 shape.inputs == 1 ? nullptr : work_.second.floats(0), work_.between);
  }

  // The MLP that every token takes beside them.
  bool run_shared() {
    if (!experts_.has_shared()) return true;
    work_.inputs.clear();
    work_.downs.clear();
    ExpertProducts mlp;
    MlpShape shape;
    if (!experts_.shared(mlp) || !take(mlp, shape)) return false;
    const std::byte* const input = operand(shape.input);
    for (std::size_t i = 0; i < shape.inputs; ++i) {
      quant::Product& product = work_.inputs[i];
      Buffer& out = i == 0 ? work_.first : work_.second;
      product.arguments.rows = tokens_;
      product.arguments.input = input;
      product.arguments.output = reinterpret_cast<std::byte*>(out.floats(tokens_ * product.weight.out_features));
    }
    fetch_next(work_.downs, tokens_);
    multiply_watched(work_.inputs);
    quant::LinearArguments& down = work_.downs[0].arguments;
    down.rows = tokens_;
    down.input = gate(tokens_, shape);
    down.output = reinterpret_cast<std::byte*>(work_.shared.floats(tokens_ * hidden_));
    fetch_next(next_, tokens_);
    multiply_watched(work_.downs);
    return !experts_.has_shared_router() || share_shared();
  }

  bool share_shared() {
    const auto router = experts_.shared_router();
    if (!router || router->weight.out_features != 1 || router->weight.in_features != hidden_) return false;
    work_.shared_shares.resize(to_size(tokens_));
    multiply_router(*router, work_.shared_shares.data());
    for (float& share : work_.shared_shares) share = 1.0f / (1.0f + std::exp(-share));
    return true;
  }

  const ExpertsView& experts_;
  const MoeConfig& config_;
  const float* input_;
  std::int64_t tokens_;
  std::int64_t asked_;     // experts of all tokens
  std::int64_t rows_ = 0;  // of those that are here
  std::int64_t hidden_ = 0;
  ExpertsWork& work_;
  const ProductsView* next_;  // null: what is multiplied after them is not known
};

}  // namespace

bool has_form(const MoeConfig& config, Activation activation) noexcept {
  return config.scoring != Scoring::kSparseMixer && !config.scales_input && has_gate(activation);
}

bool run_experts(const ExpertsView& experts, const float* input, std::int64_t tokens, ExpertsWork& work, Buffer& output,
                 const ProductsView* next) {
  return Experts(experts, input, tokens, work, next).run(output);
}

}  // namespace halfbyte::models::cpu
