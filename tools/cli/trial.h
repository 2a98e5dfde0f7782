// One operation that `doctor` tried in one dtype. Both programs try some; the first one prints them all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace halfbyte::cli {

enum class Verdict {
  kNative,   // computed in the dtype itself
  kWidened,  // computed in float32 and rounded
  kRefused,  // an error in words
  kWrong,    // it ran, and the numbers are not those of float32
};

struct Trial {
  std::string operation;  // "linear, LibTorch"
  std::string dtype;      // "bfloat16"; "float32 x bfloat16"
  Verdict verdict = Verdict::kNative;
  double rel_rmse = 0;     // from the same in float64
  std::string reason;      // how that is known, or what was said
  bool is_needed = false;  // halfbyte cannot do without it: refused is broken
};

const char* name(Verdict verdict) noexcept;
nlohmann::ordered_json to_json(const Trial& trial);
Trial trial_from_json(const nlohmann::ordered_json& json);

// sqrt(sum of squared differences / sum of the reference's squares).
double rel_rmse(std::span<const float> values, std::span<const double> reference);

// Repeatable values in (-1, 1), varied enough that a mistake in one shows.
std::vector<float> trial_values(std::size_t count, std::uint32_t seed);

}  // namespace halfbyte::cli
