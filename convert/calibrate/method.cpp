#include "convert/calibrate/method.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "convert/calibrate/descent.h"
#include "convert/calibrate/gptq.h"

namespace halfbyte::convert::calibrate {
namespace {

// A column that no token used still counts a little: another text may use it.
constexpr float kLeastWeight = 1e-4f;

// Over all columns after the first choice. On small-llama the loss falls by 6, 2 and 1 %; a fourth would take 0.5 %.
constexpr int kPasses = 3;

// Of the columns' errors, 1 on average.
std::vector<float> column_weights(const at::Tensor& moments) {
  const at::Tensor diagonal = moments.diagonal().to(at::kFloat);
  const double mean = diagonal.mean().item<double>();
  const at::Tensor weights =
      mean > 0 ? (diagonal / mean).clamp_min(kLeastWeight).contiguous() : diagonal.new_ones(diagonal.sizes());
  return {weights.const_data_ptr<float>(), weights.const_data_ptr<float>() + weights.numel()};
}

void choose_scales(Inputs& inputs, std::span<const at::Tensor> weights, std::span<PackedMatrix* const> out,
                   int threads) {
  const std::vector<float> columns = column_weights(inputs.moments);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::span values(weights[i].const_data_ptr<float>(), static_cast<std::size_t>(weights[i].numel()));
    out[i]->quantize(values, columns, quant::Search::kSquaredError, threads);
  }
}

void run_gptq(Inputs& inputs, std::span<const at::Tensor> weights, std::span<PackedMatrix* const> out, int threads) {
  choose_scales(inputs, weights, out, threads);
  damp(inputs.moments);
  std::optional<Feedback> feedback = feedback_of(inputs.moments);
  for (std::size_t i = 0; i < weights.size(); ++i) gptq(weights[i], *feedback, *out[i], threads);
  feedback.reset();  // two matrices of their size are in memory, not more
  for (std::size_t i = 0; i < weights.size(); ++i) descend(weights[i], inputs.moments, kPasses, *out[i], threads);
}

constexpr Method kMethods[] = {
    {.name = "search", .tokens_a_column = 0.0, .run = choose_scales},
    {.name = "gptq", .tokens_a_column = 0.5, .run = run_gptq},
};

}  // namespace

std::span<const Method> methods() noexcept { return kMethods; }

const Method* find_method(std::string_view name) noexcept {
  const auto found = std::ranges::find(kMethods, name, &Method::name);
  return found == std::end(kMethods) ? nullptr : found;
}

const Method& method_for(const Method& wanted, std::int64_t tokens, std::int64_t columns) noexcept {
  const bool is_enough = static_cast<double>(tokens) >= wanted.tokens_a_column * static_cast<double>(columns);
  return is_enough ? wanted : methods().front();
}

}  // namespace halfbyte::convert::calibrate
