#include "tools/cli/trial.h"

#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

namespace halfbyte::cli {
namespace {

constexpr auto kNames = std::to_array<const char*>({"native", "widened", "refused", "wrong"});

}  // namespace

const char* name(Verdict verdict) noexcept { return kNames[static_cast<std::size_t>(verdict)]; }

nlohmann::ordered_json to_json(const Trial& trial) {
  return {{"operation", trial.operation}, {"dtype", trial.dtype},   {"verdict", name(trial.verdict)},
          {"rel_rmse", trial.rel_rmse},   {"reason", trial.reason}, {"needed", trial.is_needed}};
}

Trial trial_from_json(const nlohmann::ordered_json& json) {
  Trial out{json.at("operation"), json.at("dtype"), Verdict::kWrong, 0, json.at("reason"), json.at("needed")};
  if (json.at("rel_rmse").is_number()) out.rel_rmse = json.at("rel_rmse");
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (json.at("verdict") == kNames[i]) out.verdict = static_cast<Verdict>(i);
  }
  return out;
}

double rel_rmse(std::span<const float> values, std::span<const double> reference) {
  double difference = 0;
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double delta = static_cast<double>(values[i]) - reference[i];
    difference += delta * delta;
    squares += reference[i] * reference[i];
  }
  return std::sqrt(difference / squares);
}

std::vector<float> trial_values(std::size_t count, std::uint32_t seed) {
  std::vector<float> out(count);
  std::uint32_t state = seed * 2654435761U + 1U;
  for (float& value : out) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<std::int32_t>(state >> 8) - (1 << 23)) / static_cast<float>(1 << 23);
  }
  return out;
}

}  // namespace halfbyte::cli
