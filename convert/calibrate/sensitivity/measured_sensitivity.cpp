#include "convert/calibrate/sensitivity/measured_sensitivity.h"

#include <algorithm>
#include <optional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include <halfbyte/operators.h>

#include "convert/calibrate/expert_path.h"
#include "convert/calibrate/layer_pass.h"
#include "convert/calibrate/sensitivity/gradients.h"
#include "loader/guarded.h"
#include "models/modules/tap.h"
#include "models/sessions/pass_watch.h"
#include "quant/threads.h"

namespace halfbyte::convert::calibrate {
namespace {

using Tokens = std::vector<std::vector<std::int64_t>>;

constexpr std::size_t kMostMeasured = 32;
// One sequence in so many, where none are to spare.
constexpr std::size_t kMeasuredShare = 8;

// Errors of the sampled rows of one matrix, way after way, and how much more the whole matrix counts than they do.
struct Errors {
  at::Tensor weights;  // (ways * sampled rows, in_features)
  double share = 1;
};

}  // namespace

class MeasuredSensitivity::Run {
 public:
  Run(const MeasuredSensitivity& owner, const files::Checkpoint& source, std::span<const TensorWays> tensors,
      const QuantizeOptions& options)
      : owner_(owner),
        tensors_(tensors),
        options_(options),
        threads_(options.threads > 0 ? options.threads : quant::max_threads()),
        runner_(source, DtypePolicy::float32()) {
    for (std::size_t i = 0; i < tensors.size(); ++i) places_.emplace(source.tensors[tensors[i].tensor].name, i);
    for (const TensorWays& tensor : tensors) losses_.emplace_back(tensor.ways.size());
    const at::Tensor tokens = tensor_of(owner.measured_);
    first_ = tokens.size(1) / 2;
    predicted_ = static_cast<double>(tokens.size(0) * (tokens.size(1) - first_));
    hidden_ = runner_.embed(tokens);
    gradients_ =
        gradients_of(runner_, ModelHead(source, runner_.config()), hidden_, first_,
                     {.is_wanted = [this](const models::Linear& linear) { return place_of(linear).has_value(); },
                      .layers_done = [this](std::int64_t) { done(measured_tokens()); }});
    if (!owner.chosen_by_.empty()) given_ = runner_.embed(tensor_of(owner.chosen_by_));
  }

  std::vector<std::vector<double>> run() {
    for (std::int64_t layer = 0; layer < layers(); ++layer) {
      runner_.load(layer);
      errors_.clear();
      choose_codes();
      measure();
      done(measured_tokens() + given_tokens());
    }
    return std::move(losses_);
  }

 private:
  std::int64_t layers() const { return runner_.config().num_hidden_layers; }
  std::int64_t measured_tokens() const { return hidden_.size(0) * hidden_.size(1); }
  std::int64_t given_tokens() const { return given_.defined() ? given_.size(0) * given_.size(1) : 0; }

  void done(std::int64_t tokens) {
    done_ += tokens;
    if (owner_.options_.progress)
      owner_.options_.progress(static_cast<std::uint64_t>(done_ / layers()),
                               static_cast<std::uint64_t>(3 * measured_tokens() + given_tokens()));
  }

  std::optional<std::size_t> place_of(const models::Linear& linear) const {
    auto found = places_.find(linear.path() + ".weight");
    if (found != places_.end()) return found->second;
    const auto expert = expert_path(linear.path());
    found = expert ? places_.find(expert->stack) : places_.end();
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

  bool is_measured(const models::Linear& linear) const {
    return place_of(linear).has_value() && gradients_.contains(linear.path());
  }

  // As they would be: of the sampled rows alone.
  void choose_codes() {
    if (!given_.defined()) {
      for (models::DenseLinear* linear : runner_.linears()) {
        if (is_measured(*linear)) choose_by_weights(*linear);
      }
      return;
    }
    LayerPass pass(runner_, [&](const models::Linear& linear) { return is_measured(linear); });
    Moments moments;
    at::Tensor next = pass.gather(given_, moments);
    for (Part& part : moments.parts()) choose_by_moments(part);
    given_ = std::move(next);
  }

  at::Tensor sample(const models::Linear& linear) const {
    const at::Tensor weight = static_cast<const models::DenseLinear&>(linear).weight().to(at::kFloat);
    return weight.index_select(0, sampled_rows(weight.size(0))).contiguous();
  }

  std::vector<PackedMatrix> matrices_of(const models::Linear& linear, const at::Tensor& sample) const {
    std::vector<PackedMatrix> out;
    for (const PlannedTensor& way : tensors_[*place_of(linear)].ways)
      out.emplace_back(way, MatrixSize{sample.size(0), sample.size(1)});
    return out;
  }

  void choose_by_weights(const models::DenseLinear& linear) {
    const at::Tensor weights = sample(linear);
    std::vector<PackedMatrix> matrices = matrices_of(linear, weights);
    const std::span values(weights.const_data_ptr<float>(), static_cast<std::size_t>(weights.numel()));
    for (PackedMatrix& matrix : matrices)
      matrix.quantize(values, {}, options_.search.value_or(kDefaultSearch), threads_);
    keep_errors(linear, weights, matrices);
  }

  void choose_by_moments(Part& part) {
    std::vector<at::Tensor> samples, weights;
    std::vector<std::vector<PackedMatrix>> matrices;
    std::vector<PackedMatrix*> all;
    for (const models::Linear* linear : part.linears) {
      samples.push_back(sample(*linear));
      matrices.push_back(matrices_of(*linear, samples.back()));
    }
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      for (PackedMatrix& matrix : matrices[i]) {
        weights.push_back(samples[i]);
        all.push_back(&matrix);
      }
    }
    const Method& method = method_for(*owner_.method_, part.tokens, weights.front().size(1));
    Inputs inputs{part.take_moments(), {}, part.tokens};
    method.run(inputs, weights, all, threads_);
    for (std::size_t i = 0; i < matrices.size(); ++i) keep_errors(*part.linears[i], samples[i], matrices[i]);
  }

  void keep_errors(const models::Linear& linear, const at::Tensor& weights, const std::vector<PackedMatrix>& matrices) {
    const std::int64_t rows = weights.size(0), columns = weights.size(1);
    const at::Tensor errors = at::empty({std::ssize(matrices) * rows, columns}, at::kFloat);
    for (std::size_t way = 0; way < matrices.size(); ++way) {
      const at::Tensor part = errors.narrow(0, static_cast<std::int64_t>(way) * rows, rows);
      matrices[way].values({part.mutable_data_ptr<float>(), static_cast<std::size_t>(part.numel())}, threads_);
      at::Tensor(part).sub_(weights);
    }
    errors_[linear.path()] = {errors, whole_by_sample(linear)};
  }

  // Rows count by their gradients' and their weights' squares, whose product is known of all.
  double whole_by_sample(const models::Linear& linear) const {
    const at::Tensor weight = static_cast<const models::DenseLinear&>(linear).weight().to(at::kFloat);
    const at::Tensor counts = gradients_.at(linear.path()).squares * weight.square().sum(1);
    const double sampled = counts.index_select(0, sampled_rows(counts.size(0))).sum(at::kDouble).item<double>();
    return sampled > 0 ? counts.sum(at::kDouble).item<double>() / sampled : 1.0;
  }

  // The measured sequences through the layer, one after another.
  void measure() {
    at::Tensor next = at::empty_like(hidden_);
    for (std::int64_t i = 0; i < hidden_.size(0); ++i) {
      models::PassWatch::check();
      const models::Tap tap([&](const models::Linear& linear, const at::Tensor& input, const at::Tensor&) {
        if (errors_.contains(linear.path())) add(linear, input, static_cast<std::size_t>(i));
      });
      next.narrow(0, i, 1).copy_(runner_.forward(hidden_.narrow(0, i, 1)));
    }
    hidden_ = std::move(next);
  }

  void add(const models::Linear& linear, const at::Tensor& input, std::size_t sequence) {
    const Errors& errors = errors_.at(linear.path());
    const at::Tensor& gradient = gradients_.at(linear.path()).of_sequences[sequence];
    const at::Tensor x = input.reshape({-1, input.size(-1)}).to(at::kFloat);
    if (!gradient.defined() || gradient.size(0) != x.size(0)) return;
    std::vector<double>& losses = losses_[*place_of(linear)];
    const at::Tensor results = x.matmul(errors.weights.t()).view({x.size(0), std::ssize(losses), gradient.size(1)});
    const at::Tensor squares = (results * gradient.unsqueeze(1)).sum(0).square().sum(-1, false, at::kDouble);
    const double loss_left = owner_.method_ && !expert_path(linear.path()) ? owner_.method_->loss_left : 1.0;
    for (std::size_t way = 0; way < losses.size(); ++way)
      losses[way] += loss_left * errors.share * squares.const_data_ptr<double>()[way] / (2 * predicted_);
  }

  const MeasuredSensitivity& owner_;
  std::span<const TensorWays> tensors_;
  const QuantizeOptions& options_;
  int threads_;
  LayerRunner runner_;
  std::map<std::string, std::size_t> places_;  // among tensors_, by the tensor's name
  std::int64_t first_ = 0;                     // position that is predicted
  double predicted_ = 0;                       // how many are
  at::Tensor hidden_, given_;  // what the layer is given; the latter: of the sequences that codes are chosen by
  Gradients gradients_;
  std::map<std::string, Errors> errors_;  // of the layer, by the product's path
  std::vector<std::vector<double>> losses_;
  std::int64_t done_ = 0;  // tokens times layers
};

MeasuredSensitivity::MeasuredSensitivity(std::function<CalibrationTokens()> tokens, const Method* method,
                                         SensitivityOptions options)
    : tokens_(std::move(tokens)), method_(method), options_(std::move(options)) {}

// Which are measured on, and which codes are chosen by.
void MeasuredSensitivity::share_out(CalibrationTokens tokens) {
  Tokens& all = tokens.sequences;
  if (all.empty()) throw Error(ErrorCode::kInvalidArgument, "no tokens to measure losses with");
  hash_ = std::move(tokens.hash);
  const std::size_t wanted = method_ ? static_cast<std::size_t>(options_.chosen_by) / all.front().size() : 0;
  // Where no more are there than codes are chosen by, the end in one piece: what stands beside a sequence is much like
  // it, and would promise too much.
  const std::size_t held_back = std::clamp<std::size_t>(all.size() / kMeasuredShare, 1, kMostMeasured);
  const std::size_t chosen = all.size() > wanted ? wanted : all.size() - held_back;
  const std::size_t rest = all.size() - chosen, measured = std::min(rest, kMostMeasured);
  for (std::size_t i = 0; i < measured; ++i) measured_.push_back(all[chosen + i * rest / measured]);
  if (!method_) return;
  all.resize(std::max<std::size_t>(chosen, 1));  // a single one is both
  chosen_by_ = std::move(all);
}

std::vector<std::vector<double>> MeasuredSensitivity::losses(const files::Checkpoint& source,
                                                             std::span<const TensorWays> tensors,
                                                             const QuantizeOptions& options) {
  if (measured_.empty()) share_out(tokens_());
  operators::register_operators();
  const models::PassWatch watch(options.stop);
  return guarded(source.directory.string(), [&] { return Run(*this, source, tensors, options).run(); });
}

nlohmann::json MeasuredSensitivity::record() const {
  nlohmann::json out{{"tokens", measured_.size() * measured_.front().size() / 2}};
  if (!hash_.empty()) out["text"] = hash_;
  if (method_) out["method"] = method_->name;
  return out;
}

Text MeasuredSensitivity::basis() const {
  return std::to_string(measured_.size() * (measured_.front().size() - measured_.front().size() / 2)) + " tokens of " +
         options_.tokens_name;
}

}  // namespace halfbyte::convert::calibrate

namespace halfbyte::convert {

std::shared_ptr<Sensitivity> make_sensitivity(std::function<CalibrationTokens()> tokens, SensitivityOptions options) {
  const calibrate::Method* method = options.method.empty() ? nullptr : calibrate::find_method(options.method);
  if (!method && !options.method.empty())
    throw Error(ErrorCode::kInvalidArgument, "unknown calibration method '" + options.method + "'");
  return std::make_shared<calibrate::MeasuredSensitivity>(std::move(tokens), method, std::move(options));
}

}  // namespace halfbyte::convert
