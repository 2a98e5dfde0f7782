#include "loader/files/formats/gguf/rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/printable.h"
#include "models/architectures/family.h"

namespace halfbyte::files {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kFactors = "rope_freqs.weight";
constexpr std::string_view kLongFactors = "rope_factors_long.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight";

// What Llama 3.1 and later turn frequencies with, alike but for the factor and, in models that others make, the length.
constexpr double kLowFactor = 1, kHighFactor = 4;
constexpr std::int64_t kUsualLength = 8192;

// By how much Llama 3's scaling divides pair i's frequency. Source: transformers, modeling_rope_utils.py.
double llama3_divisor(double factor, double theta, double length, std::size_t pair, std::size_t pairs) {
  const double frequency = std::pow(theta, -static_cast<double>(pair) / static_cast<double>(pairs));
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < length / kHighFactor) return 1;
  if (wavelength > length / kLowFactor) return factor;
  const double smooth = (length / wavelength - kLowFactor) / (kHighFactor - kLowFactor);
  return 1 / ((1 - smooth) / factor + smooth);
}

bool is_llama3(const std::vector<float>& divisors, double factor, double theta, std::int64_t length) {
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double wanted = llama3_divisor(factor, theta, static_cast<double>(length), i, divisors.size());
    if (std::abs(divisors[i] - wanted) > 1e-4 * wanted) return false;
  }
  return true;
}

// The original context of which the divisors are Llama 3's; nothing: of none.
std::optional<std::int64_t> llama3_length(const std::vector<float>& divisors, double factor, double theta) {
  if (is_llama3(divisors, factor, theta, kUsualLength)) return kUsualLength;
  for (std::int64_t length = 32; length <= 1 << 20; length *= 2) {
    if (is_llama3(divisors, factor, theta, length)) return length;
  }
  return std::nullopt;
}

// A number that was divided, rounded to float32 and multiplied again: to the digits that it has then.
double without_noise(double value) {
  constexpr double kDigits = 1e6;
  return std::round(value * kDigits) / kDigits;
}

class Rope {
 public:
  Rope(const GgufParts& parts, const std::string& prefix, ordered_json& config, std::vector<std::string>& notes)
      : parts_(parts), file_(parts.front()), prefix_(prefix), config_(config), notes_(notes) {}

  void add() {
    theta_ = file_.number(prefix_ + "rope.freq_base").value_or(10000.0);
    config_["rope_theta"] = theta_;
    original_length_ = file_.integer(prefix_ + "rope.scaling.original_context_length");
    if (find_tensor(parts_, kLongFactors) || find_tensor(parts_, kShortFactors)) return add_longrope();
    if (find_tensor(parts_, kFactors)) return add_divisors();
    add_scaling(file_.text(prefix_ + "rope.scaling.type").value_or(""));
  }

 private:
  void add_longrope() {
    ordered_json scaling = {{"rope_type", "longrope"},
                            {"short_factor", gguf_values(parts_, kShortFactors)},
                            {"long_factor", gguf_values(parts_, kLongFactors)}};
    if (const auto attention = file_.number(prefix_ + "rope.scaling.attn_factor"))
      scaling["attention_factor"] = *attention;
    config_["rope_scaling"] = std::move(scaling);
    if (original_length_) config_["original_max_position_embeddings"] = *original_length_;
  }

  // The scaling itself is not on record, only what it comes to for each pair.
  void add_divisors() {
    const std::vector<float> divisors = gguf_values(parts_, kFactors);
    const float factor = std::ranges::max(divisors);
    if (std::ranges::all_of(divisors, [](float divisor) { return divisor == 1.0F; })) return;
    if (const auto length = llama3_length(divisors, factor, theta_)) {
      config_["rope_scaling"] = {{"rope_type", "llama3"},
                                 {"factor", factor},
                                 {"low_freq_factor", kLowFactor},
                                 {"high_freq_factor", kHighFactor},
                                 {"original_max_position_embeddings", *length}};
      return;
    }
    notes_.emplace_back("rope_freqs.weight is not Llama 3's usual scaling: its divisors are given as \"longrope\"");
    config_["rope_scaling"] = {
        {"rope_type", "longrope"}, {"short_factor", divisors}, {"long_factor", divisors}, {"attention_factor", 1.0}};
  }

  struct Scaling {
    std::string_view type;  // rope.scaling.type
    void (Rope::*add)();
  };
  static const Scaling kScalings[3];

  void add_scaling(std::string type) {
    factor_ = file_.number(prefix_ + "rope.scaling.factor");
    old_factor_ = file_.number(prefix_ + "rope.scale_linear");
    if (type.empty() && (factor_ || old_factor_)) type = "linear";
    if (type.empty()) return;
    const auto row = std::ranges::find(kScalings, type, &Scaling::type);
    if (row == std::end(kScalings))
      file_.fail(ErrorCode::kUnsupported, "rope scaling " + in_quotes(type) + "; linear, yarn and longrope are read");
    (this->*row->add)();
  }

  void add_none() {}

  void add_linear() {
    const double value = factor_ ? *factor_ : old_factor_.value_or(1.0);
    if (value > 1) config_["rope_scaling"] = {{"rope_type", "linear"}, {"factor", value}};
  }

  void add_yarn() {
    ordered_json scaling = {{"rope_type", "yarn"}};
    if (factor_) scaling["factor"] = *factor_;
    if (original_length_) scaling["original_max_position_embeddings"] = *original_length_;
    constexpr auto kKeys = std::to_array<std::pair<const char*, const char*>>(
        {{"rope.scaling.yarn_beta_fast", "beta_fast"}, {"rope.scaling.yarn_beta_slow", "beta_slow"}});
    for (const auto& [gguf, key] : kKeys) {
      if (const auto value = file_.number(prefix_ + gguf)) scaling[key] = *value;
    }
    const auto attention = file_.number(prefix_ + "rope.scaling.attn_factor");
    if (attention && *attention != 1.0 && factor_ && *factor_ > 1)
      scaling["attention_factor"] = without_noise(*attention * models::yarn_scale(*factor_));
    config_["rope_scaling"] = std::move(scaling);
  }

  const GgufParts& parts_;
  const GgufFile& file_;
  const std::string& prefix_;
  ordered_json& config_;
  std::vector<std::string>& notes_;
  double theta_ = 0;
  std::optional<std::int64_t> original_length_;
  std::optional<double> factor_, old_factor_;
};

constexpr Rope::Scaling Rope::kScalings[] = {
    {"linear", &Rope::add_linear}, {"none", &Rope::add_none}, {"yarn", &Rope::add_yarn}};

}  // namespace

bool is_rope_tensor(std::string_view name) noexcept {
  return name == kFactors || name == kLongFactors || name == kShortFactors;
}

void add_gguf_rope(const GgufParts& parts, const std::string& prefix, ordered_json& config,
                   std::vector<std::string>& notes) {
  Rope(parts, prefix, config, notes).add();
}

}  // namespace halfbyte::files
