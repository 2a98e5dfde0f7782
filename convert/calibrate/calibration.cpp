#include "convert/calibrate/calibration.h"

#include <algorithm>
#include <optional>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <nlohmann/json.hpp>

#include <halfbyte/linear.h>
#include <halfbyte/operators.h>

#include "convert/calibrate/layer_pass.h"
#include "loader/files/matrix_shape.h"
#include "loader/guarded.h"
#include "loader/torch_runtime.h"
#include "models/modules/pass_watch.h"
#include "quant/threads.h"

namespace halfbyte::convert::calibrate {
namespace {

at::Tensor tensor_of(const CalibrationTokens& tokens) {
  std::vector<at::Tensor> rows;
  for (const auto& sequence : tokens.sequences) rows.push_back(at::tensor(sequence));
  return at::stack(rows);
}

std::int64_t token_count(const CalibrationTokens& tokens) {
  std::int64_t out = 0;
  for (const auto& sequence : tokens.sequences) out += std::ssize(sequence);
  return out;
}

int threads_of(const QuantizeOptions& options) { return options.threads > 0 ? options.threads : quant::max_threads(); }

}  // namespace

// A weight's place among the tensors of the plan.
struct Calibration::Place {
  std::size_t tensor;
  std::size_t matrix;  // of a stack
};

// What one run works with.
class Calibration::Run {
 public:
  Run(Calibration& calibration, const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options)
      : calibration_(calibration),
        source_(source),
        plan_(plan),
        options_(options),
        runner_(source, DtypePolicy::float32()),
        hidden_(runner_.embed(tensor_of(calibration.tokens_))) {
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      if (plan.tensors[i].scheme && plan.tensors[i].tied_to.empty())
        planned_.emplace(source.tensors[plan.tensors[i].source].name, i);
    }
  }

  void run() {
    const std::int64_t layers = runner_.config().num_hidden_layers;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      run_layer(layer);
      const std::int64_t tokens = token_count(calibration_.tokens_);
      if (calibration_.options_.progress)
        calibration_.options_.progress(static_cast<std::uint64_t>(tokens * (layer + 1) / layers),
                                       static_cast<std::uint64_t>(tokens));
    }
  }

 private:
  void run_layer(std::int64_t layer) {
    runner_.load(layer);
    LayerPass pass(runner_, [&](const models::Linear& linear) { return place_of(linear).has_value(); });
    const CalibrationInputs inputs = calibration_.options_.inputs;
    if (inputs == CalibrationInputs::kSequential) {
      while (std::optional<Moments> stage = pass.next_stage(hidden_)) choose(*stage, true);
      hidden_ = pass.run(hidden_);
      return;
    }
    Moments moments;
    at::Tensor given = pass.gather(hidden_, moments);
    const bool goes_on_quantized = inputs == CalibrationInputs::kQuantized;
    choose(moments, goes_on_quantized);
    hidden_ = goes_on_quantized ? pass.run(hidden_) : std::move(given);
  }

  // "X.weight", or the tensor that an expert's matrix is stacked in: "A.experts.3.B" lies in "A.experts.B".
  std::optional<Place> place_of(const models::Linear& linear) const {
    const std::string& path = linear.path();
    if (const auto found = planned_.find(path + ".weight"); found != planned_.end()) return Place{found->second, 0};
    const auto expert = expert_path(path);
    const auto found = expert ? planned_.find(expert->stack) : planned_.end();
    if (found == planned_.end()) return std::nullopt;
    return Place{found->second, expert->expert};
  }

  void choose(const Moments& moments, bool is_put_back) {
    for (const Part& part : moments.parts()) choose(part, is_put_back);
  }

  void choose(const Part& part, bool is_put_back) {
    std::vector<at::Tensor> weights;
    std::vector<PackedMatrix*> matrices;
    for (const models::Linear* linear : part.linears) {
      weights.push_back(static_cast<const models::DenseLinear*>(linear)->weight().to(at::kFloat).contiguous());
      matrices.push_back(&matrix_at(*place_of(*linear)));
    }
    const auto columns = static_cast<double>(weights.front().size(1));
    const bool is_enough = static_cast<double>(part.tokens) >= calibration_.method_.tokens_a_column * columns;
    const Method& method = is_enough ? calibration_.method_ : methods().front();
    calibration_.searched_ += is_enough ? 0 : std::ssize(matrices);
    calibration_.matrices_ += std::ssize(matrices);
    method.run({part.moments(), part.tokens}, weights, matrices, threads_of(options_));
    if (!is_put_back) return;
    for (std::size_t i = 0; i < matrices.size(); ++i) put_back(*part.linears[i], *matrices[i], threads_of(options_));
  }

  PackedMatrix& matrix_at(const Place& place) {
    CalibratedTensor& tensor = calibration_.tensors_[place.tensor];
    const PlannedTensor& planned = plan_.tensors[place.tensor];
    if (tensor.matrices.empty()) {
      const std::vector<std::int64_t>& shape = source_.tensors[planned.source].shape;
      const std::int64_t count = shape.size() == 3 ? shape.front() : 1;
      const auto [rows, columns] = files::matrix_shape(shape);
      tensor.matrices.assign(static_cast<std::size_t>(count), PackedMatrix(planned, {rows / count, columns}));
      tensor.is_done.assign(static_cast<std::size_t>(count), false);
      tensor.groups_a_matrix = static_cast<std::uint64_t>(rows / count * (columns / planned.group_size));
      tensor.is_whole = count == 1 || !planned.is_nested || tensor.groups_a_matrix % kNestedBlock == 0;
    }
    tensor.is_done.at(place.matrix) = true;
    return tensor.matrices.at(place.matrix);
  }

  // The product computes from here on with what its codes stand for.
  static void put_back(const models::Linear& linear, const PackedMatrix& matrix, int threads) {
    const auto [rows, columns] = matrix.size();
    const at::Tensor values = at::empty({rows, columns}, at::kFloat);
    matrix.values({values.mutable_data_ptr<float>(), static_cast<std::size_t>(values.numel())}, threads);
    at::Tensor weight = static_cast<const models::DenseLinear&>(linear).weight();
    weight.copy_(values);
  }

  Calibration& calibration_;
  const files::Checkpoint& source_;
  const Plan& plan_;
  const QuantizeOptions& options_;
  LayerRunner runner_;
  at::Tensor hidden_;  // what the layer is given; (sequences, tokens, hidden_size), float32
  std::map<std::string, std::size_t> planned_;
};

nlohmann::json Calibration::record() const {
  return {{"method", method_.name},
          {"text", tokens_.hash},
          {"sequences", tokens_.sequences.size()},
          {"tokens", token_count(tokens_)},
          {"isa", quant::isa_name()},
          {"threads", at::get_num_threads()},
          {"libtorch", torch_version().running}};
}

void Calibration::run(const files::Checkpoint& source, const Plan& plan, const QuantizeOptions& options) {
  operators::register_operators();
  const models::PassWatch watch(options.stop);
  guarded(source.directory.string(), [&] { Run(*this, source, plan, options).run(); });
}

bool Calibration::has(std::size_t tensor) const noexcept {
  const auto found = tensors_.find(tensor);
  return found != tensors_.end() && found->second.is_whole &&
         std::ranges::all_of(found->second.is_done, [](bool is_done) { return is_done; });
}

void Calibration::read(std::size_t tensor, std::uint64_t first, quant::PackedRows out,
                       std::span<quant::ErrorStats> group_stats) const {
  const CalibratedTensor& from = tensors_.at(tensor);
  for (std::uint64_t done = 0; done < group_stats.size();) {
    const std::uint64_t within = (first + done) % from.groups_a_matrix;
    const std::uint64_t count = std::min<std::uint64_t>(group_stats.size() - done, from.groups_a_matrix - within);
    from.matrices.at((first + done) / from.groups_a_matrix).copy(within, count, done, out, group_stats);
    done += count;
  }
}

std::vector<Text> Calibration::notes() const {
  std::vector<Text> out = tokens_.notes;
  if (searched_ > 0) {
    out.push_back(std::to_string(searched_) + " of " + std::to_string(matrices_) + " matrices saw too few tokens for " +
                  std::string(method_.name) + ": their scales were searched with the inputs' second moments instead");
  }
  return out;
}

}  // namespace halfbyte::convert::calibrate

namespace halfbyte::convert {

std::shared_ptr<Calibrator> make_calibrator(CalibrationTokens tokens, const CalibrateOptions& options) {
  const calibrate::Method* method = calibrate::find_method(options.method);
  if (!method) throw Error(ErrorCode::kInvalidArgument, "unknown calibration method '" + options.method + "'");
  if (tokens.sequences.empty()) throw Error(ErrorCode::kInvalidArgument, "no tokens to calibrate with");
  return std::make_shared<calibrate::Calibration>(std::move(tokens), *method, options);
}

}  // namespace halfbyte::convert
