// Rotary embedding's part of config.json, in its three spellings.
// Source: transformers modeling_rope_utils.py.
#include <array>
#include <cmath>
#include <optional>

#include <halfbyte/error.h>

#include "models/architectures/family.h"
#include "models/json/printable.h"

namespace halfbyte::models {
namespace {

struct RopeName {
  std::string_view name;
  RopeType type;
};

// The first of a type is the one that is written.
constexpr auto kRopeTypes = std::to_array<RopeName>({
    {"default", RopeType::kDefault},
    {"linear", RopeType::kLinear},
    {"dynamic", RopeType::kDynamic},
    {"llama3", RopeType::kLlama3},
    {"yarn", RopeType::kYarn},
    {"longrope", RopeType::kLongrope},
    {"su", RopeType::kLongrope},  // early Phi-3
    {"proportional", RopeType::kProportional},
});

RopeType rope_type(const std::string& name) {
  for (const RopeName& row : kRopeTypes) {
    if (row.name == name) return row.type;
  }
  throw Error(ErrorCode::kUnsupported,
              "config.json: rope scaling " + in_quotes(name) +
                  " is not supported; default, linear, dynamic, llama3, yarn, longrope and proportional are");
}

[[noreturn]] void corrupt(const std::string& problem) { throw Error(ErrorCode::kCorrupt, "config.json: " + problem); }

void parse_linear(const ConfigReader& scaling, RopeConfig& rope, ModelConfig&) {
  rope.factor = scaling.number("factor", 1.0, 1e6);
}

// The context that config.json names is the one before scaling.
void parse_dynamic(const ConfigReader& scaling, RopeConfig& rope, ModelConfig& model) {
  rope.factor = scaling.number("factor", 1.0, 1e6);
  if (rope.rotary_dim < 4) corrupt("dynamic rope scaling needs a rotary dimension of at least 4");
  rope.original_max_position_embeddings = model.max_position_embeddings;
  const double longest = static_cast<double>(model.max_position_embeddings) * rope.factor;
  model.max_position_embeddings = static_cast<std::int64_t>(std::min(longest, static_cast<double>(kMaxSize)));
}

void parse_llama3(const ConfigReader& scaling, RopeConfig& rope, ModelConfig&) {
  rope.factor = scaling.number("factor", 1.0, 1e6);
  rope.low_freq_factor = scaling.number("low_freq_factor", 1e-6, 1e6);
  rope.high_freq_factor = scaling.number("high_freq_factor", 1e-6, 1e6);
  if (rope.high_freq_factor < rope.low_freq_factor)
    corrupt("rope \"high_freq_factor\" must not be less than \"low_freq_factor\"");
}

double original_share(const RopeConfig& rope, const ModelConfig& model) {
  return static_cast<double>(model.max_position_embeddings) /
         static_cast<double>(rope.original_max_position_embeddings);
}

void parse_yarn(const ConfigReader& scaling, RopeConfig& rope, ModelConfig& model) {
  rope.factor = scaling.number_or("factor", original_share(rope, model), 1e-6, 1e6);
  rope.beta_fast = scaling.number_or("beta_fast", 32.0, 1e-6, 1e6);
  rope.beta_slow = scaling.number_or("beta_slow", 1.0, 1e-6, 1e6);
  rope.is_range_truncated = scaling.boolean_or("truncate", true);
  const double mscale = scaling.number_or("mscale", 0.0, 0.0, 1e6);
  const double mscale_all = scaling.number_or("mscale_all_dim", 0.0, 0.0, 1e6);
  const double inferred = mscale > 0 && mscale_all > 0
                              ? yarn_scale(rope.factor, mscale) / yarn_scale(rope.factor, mscale_all)
                              : yarn_scale(rope.factor, 1.0);
  rope.attention_factor = scaling.number_or("attention_factor", inferred, 1e-6, 1e6);
}

std::vector<double> factors(const ConfigReader& scaling, const char* key, std::int64_t pairs) {
  std::vector<double> out = scaling.numbers(key, 1e-6, 1e9);
  if (static_cast<std::int64_t>(out.size()) == pairs) return out;
  corrupt(std::string("\"") + key + "\" has " + std::to_string(out.size()) + " numbers; expected " +
          std::to_string(pairs) + ", one for every pair that turns");
}

void parse_longrope(const ConfigReader& scaling, RopeConfig& rope, ModelConfig& model) {
  rope.short_factors = factors(scaling, "short_factor", rope.rotary_dim / 2);
  rope.long_factors = factors(scaling, "long_factor", rope.rotary_dim / 2);
  rope.factor = scaling.number_or("factor", original_share(rope, model), 1e-6, 1e6);
  const double original = static_cast<double>(rope.original_max_position_embeddings);
  const double inferred =
      rope.factor <= 1.0 || original <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(rope.factor) / std::log(original));
  rope.attention_factor = scaling.number_or("attention_factor", inferred, 1e-6, 1e6);
}

void parse_proportional(const ConfigReader& scaling, RopeConfig& rope, ModelConfig&) {
  rope.factor = scaling.number_or("factor", 1.0, 1e-6, 1e6);
}

void parse_default(const ConfigReader&, RopeConfig&, ModelConfig&) {}

// Indexed by RopeType.
constexpr std::array<void (*)(const ConfigReader&, RopeConfig&, ModelConfig&), 7> kParsers = {
    parse_default, parse_linear, parse_dynamic, parse_llama3, parse_yarn, parse_longrope, parse_proportional};

std::int64_t rotary_dim(double partial, std::int64_t head_dim) {
  const auto dim = static_cast<std::int64_t>(static_cast<double>(head_dim) * partial);
  if (dim >= 2 && dim % 2 == 0) return dim;
  corrupt(std::to_string(dim) + " of head_dim " + std::to_string(head_dim) +
          " turn with the position; rotary embedding needs an even number of at least 2");
}

constexpr const char* kFullRope = "full_attention";

double usual_partial(const ConfigReader& config, const Family& family, const ModelConfig& model) {
  if (*family.keys.rotary_dim == '\0' || !config.has(family.keys.rotary_dim))
    return family.defaults.partial_rotary_factor;
  const std::int64_t dim = config.integer(family.keys.rotary_dim, 1, model.head_dim);
  return static_cast<double>(dim) / static_cast<double>(model.head_dim);
}

RopeConfig rope_of(const ConfigReader& config, const std::optional<ConfigReader>& scaling, const Family& family,
                   ModelConfig& model) {
  RopeConfig rope;
  rope.theta = config.number_or("rope_theta", family.defaults.rope_theta, 1.0, 1e12);
  double partial = config.number_or("partial_rotary_factor", usual_partial(config, family, model), 0.0, 1.0);
  if (scaling) {
    rope.theta = scaling->number_or("rope_theta", rope.theta, 1.0, 1e12);
    partial = scaling->number_or("partial_rotary_factor", partial, 0.0, 1.0);
  }
  if (scaling) rope.type = rope_type(scaling->string_or("rope_type", scaling->string_or("type", "default")));
  if (rope.type == RopeType::kProportional) {  // all of a head takes part, of which that share turns
    rope.rotary_dim = model.head_dim;
    rope.turning_dim = 2 * static_cast<std::int64_t>(partial * static_cast<double>(model.head_dim) / 2.0);
  } else {
    rope.rotary_dim = rotary_dim(partial, model.head_dim);
  }
  rope.original_max_position_embeddings = model.max_position_embeddings;
  if (!scaling) return rope;
  const std::int64_t original =
      scaling->integer_or("original_max_position_embeddings", model.max_position_embeddings, 1, kMaxSize);
  rope.original_max_position_embeddings = config.integer_or("original_max_position_embeddings", original, 1, kMaxSize);
  kParsers[static_cast<std::size_t>(rope.type)](*scaling, rope, model);
  return rope;
}

bool is_by_kind(const std::optional<ConfigReader>& scaling) {
  return scaling && (scaling->has(kFullRope) || scaling->has(kSlidingRope));
}

}  // namespace

double yarn_scale(double factor, double mscale) noexcept {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

std::string_view name(RopeType type) noexcept {
  for (const RopeName& row : kRopeTypes) {
    if (row.type == type) return row.name;
  }
  return {};
}

std::int64_t RopeConfig::fixed_length() const noexcept {
  return type == RopeType::kDynamic || type == RopeType::kLongrope ? original_max_position_embeddings : 0;
}

// Of which the type is "rope_type", or (older) "type".
std::optional<ConfigReader> rope_scaling_of(const ConfigReader& config) {
  auto scaling = config.object("rope_parameters");
  return scaling ? scaling : config.object("rope_scaling");
}

RopeConfig parse_rope(const ConfigReader& config, const Family& family, ModelConfig& model) {
  const auto scaling = rope_scaling_of(config);
  if (!is_by_kind(scaling)) return rope_of(config, scaling, family, model);
  if (family.turns_by_kind) return rope_of(config, scaling->object(kFullRope), family, model);
  throw Error(ErrorCode::kUnsupported, "config.json: rope parameters for each kind of layer are not supported");
}

// Where "rope_scaling" is not by kind it is that of the layers that see everything.
RopeConfig parse_sliding_rope(const ConfigReader& config, const Family& family, const ModelConfig& model) {
  ModelConfig unchanged = model;
  const auto scaling = rope_scaling_of(config);
  const auto own = is_by_kind(scaling) ? scaling->object(kSlidingRope) : std::nullopt;
  RopeConfig rope = rope_of(config, own, family, unchanged);
  if (own && own->has("rope_theta")) return rope;
  const double all = scaling ? scaling->number_or("rope_theta", rope.theta, 1.0, 1e12) : rope.theta;
  const double fallback = family.defaults.sliding_rope_theta;
  rope.theta = fallback > 0.0 ? config.number_or("rope_local_base_freq", fallback, 1.0, 1e12) : all;
  return rope;
}

}  // namespace halfbyte::models
