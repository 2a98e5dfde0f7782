#include "convert/calibrate/method.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "convert/calibrate/correction.h"
#include "convert/calibrate/descent.h"
#include "convert/calibrate/gptq.h"

namespace halfbyte::convert::calibrate {
namespace {

// Of the mean second moment, added to every column's: another text may use other columns. Loss of small-llama with and
// without it, in the mean of searches that differ at random: `search` the same on the kind of text that was read and
// 0.98 on another, `gptaq` 0.98 and 0.95. With 1.0 `search` loses 4 % more on the first.
constexpr float kOfEveryColumn = 0.3f;

// Over all columns after the first choice. On small-llama the loss falls by 6, 2 and 1 %; a fourth would take 0.5 %.
constexpr int kPasses = 3;

// Of the columns' errors, 1 on average.
std::vector<float> column_weights(const at::Tensor& moments) {
  const at::Tensor diagonal = moments.diagonal().to(at::kFloat);
  const double mean = diagonal.mean().item<double>();
  const at::Tensor weights = mean > 0 ? ((diagonal / mean + kOfEveryColumn) / (1.0f + kOfEveryColumn)).contiguous()
                                      : diagonal.new_ones(diagonal.sizes());
  return {weights.const_data_ptr<float>(), weights.const_data_ptr<float>() + weights.numel()};
}

std::span<const float> flat(const at::Tensor& values) {
  return {values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel())};
}

void choose_scales(Inputs& inputs, std::span<const at::Tensor> weights, std::span<PackedMatrix* const> out,
                   int threads) {
  const std::vector<float> columns = column_weights(inputs.moments);
  for (std::size_t i = 0; i < weights.size(); ++i)
    out[i]->quantize(flat(weights[i]), columns, quant::Search::kLengthened, threads);
}

// Where there is a drift, codes stand for weights that make up for it, and what is recorded as lost is what they are
// off from the weights.
void run_gptq(Inputs& inputs, std::span<const at::Tensor> weights, std::span<PackedMatrix* const> out, int threads) {
  std::vector<at::Tensor> wanted(weights.begin(), weights.end());
  const bool has_drift = inputs.drift.defined();
  if (has_drift)
    for (at::Tensor& each : wanted) each = wanted_change(each, inputs.drift);
  inputs.drift = at::Tensor();
  const std::vector<float> columns = column_weights(inputs.moments);
  damp(inputs.moments);
  std::optional<Feedback> feedback = feedback_of(inputs.moments);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (has_drift) correct(weights[i], *feedback, wanted[i]);
    out[i]->quantize(flat(wanted[i]), columns, quant::Search::kSquaredError, threads);
    gptq(wanted[i], *feedback, *out[i], threads);
  }
  feedback.reset();  // two matrices of their size are in memory, not more
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    descend(wanted[i], inputs.moments, kPasses, *out[i], threads);
    if (has_drift) out[i]->set_errors(flat(weights[i]), threads);
  }
}

// Beside gptq, in seven schemes of small-llama: .78 to .82; of tiny-llama: .84 to .86.
constexpr double kLossLeft = 0.82;

// From the one that needs least to the one that loses least.
constexpr Method kMethods[] = {
    {.name = "search", .tokens_a_column = 0.0, .follows_quantized = false, .loss_left = 1.0, .run = choose_scales},
    {.name = "gptq", .tokens_a_column = 0.5, .follows_quantized = false, .loss_left = 1.0, .run = run_gptq},
    {.name = "gptaq", .tokens_a_column = 0.5, .follows_quantized = true, .loss_left = kLossLeft, .run = run_gptq},
};

}  // namespace

std::span<const Method> methods() noexcept { return kMethods; }

const Method* find_method(std::string_view name) noexcept {
  if (name == "auto") return std::prev(std::end(kMethods));
  const auto found = std::ranges::find(kMethods, name, &Method::name);
  return found == std::end(kMethods) ? nullptr : found;
}

const Method& method_for(const Method& wanted, std::int64_t tokens, std::int64_t columns) noexcept {
  const bool is_enough = static_cast<double>(tokens) >= wanted.tokens_a_column * static_cast<double>(columns);
  return is_enough ? wanted : methods().front();
}

}  // namespace halfbyte::convert::calibrate
