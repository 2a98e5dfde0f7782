#include "models/architectures/architecture.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

namespace halfbyte::models {
namespace {

// General naming of families that have no row: the last word before ".weight" that says what a module is.
struct GeneralName {
  std::string_view word;
  Role role;
};

constexpr auto kGeneralNames = std::to_array<GeneralName>({
    {"embed", Role::kEmbedding},
    {"wte", Role::kEmbedding},
    {"wpe", Role::kEmbedding},
    {"norm", Role::kNorm},
    {"ln_", Role::kNorm},
    {"lm_head", Role::kHead},
    {"output_layer", Role::kHead},
    {"router", Role::kRouter},
});

Role general_role(std::string_view name, std::span<const std::int64_t> shape) {
  if (name.ends_with(".bias")) return Role::kBias;
  if (!name.ends_with(".weight")) return Role::kUnknown;
  for (const GeneralName& row : kGeneralNames) {
    if (name.find(row.word) != std::string_view::npos) return row.role;
  }
  return shape.size() == 2 ? Role::kLinear : Role::kUnknown;
}

std::string_view text_or_empty(const nlohmann::json& value) {
  return value.is_string() ? std::string_view(value.get_ref<const std::string&>()) : std::string_view();
}

std::vector<Architecture> all_architectures() {
  std::vector<Architecture> out;
  for (const Family* family : families()) {
    Architecture row{family->model_type, family->class_name, family, {}};
    for (const Naming& naming : family->namings) {
      for (TensorPattern& pattern : patterns_of(naming)) row.tensors.push_back(std::move(pattern));
    }
    out.push_back(std::move(row));
  }
  return out;
}

nlohmann::json rope_inputs(const RopeConfig& rope) {
  nlohmann::json inputs = {{"rope_type", name(rope.type)}, {"rope_theta", rope.theta}, {"rotary_dim", rope.rotary_dim}};
  if (rope.type == RopeType::kDefault) return inputs;
  inputs["factor"] = rope.factor;
  if (rope.type == RopeType::kLinear) return inputs;
  inputs["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  if (rope.type == RopeType::kLlama3) {
    inputs["low_freq_factor"] = rope.low_freq_factor;
    inputs["high_freq_factor"] = rope.high_freq_factor;
  } else if (rope.type == RopeType::kYarn) {
    inputs["beta_fast"] = rope.beta_fast;
    inputs["beta_slow"] = rope.beta_slow;
    inputs["truncate"] = rope.is_range_truncated;
  } else if (rope.type == RopeType::kLongrope) {
    inputs["short_factor"] = rope.short_factors;
    inputs["long_factor"] = rope.long_factors;
  }
  return inputs;
}

}  // namespace

ModelConfig Architecture::parse(const nlohmann::json& config) const {
  return parse_config(*family, ConfigReader(config, "config.json"));
}

std::vector<DerivedBuffer> Architecture::derived(const ModelConfig& config) {
  std::vector<DerivedBuffer> out;
  for (const RopeConfig& rope : config.ropes) {
    const std::string name = std::string(config.naming->rotary) + "." + rope.buffer();
    out.push_back({name, Dtype::kFloat32, "rope", HeldJson(rope_inputs(rope))});
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> Architecture::ties(const ModelConfig& config) {
  if (!config.tie_word_embeddings) return {};
  return {{std::string(config.naming->head) + ".weight", std::string(config.naming->embedding) + ".weight"}};
}

void Architecture::choose_naming(ModelConfig& config, const std::function<bool(const std::string&)>& has) const {
  if (family->namings.size() == 1) return;
  std::ptrdiff_t most = -1;
  const Naming* best = config.naming;
  for (const Naming& naming : family->namings) {
    config.naming = &naming;
    const auto found = std::ranges::count_if(expected(config), [&](const ExpectedTensor& t) { return has(t.name); });
    if (found > most) best = &naming;
    most = std::max<std::ptrdiff_t>(most, found);
  }
  config.naming = best;
}

std::span<const Architecture> architectures() noexcept {
  static const std::vector<Architecture> rows = all_architectures();
  return rows;
}

const Architecture* find_architecture(const nlohmann::json& config) {
  if (!config.is_object()) return nullptr;
  const auto by = [&](std::string_view Architecture::*key, std::string_view wanted) -> const Architecture* {
    const auto row = std::ranges::find(architectures(), wanted, key);
    if (row == architectures().end()) return nullptr;
    const char* telling = row->family->telling_key;
    return telling && !config.contains(telling) ? nullptr : &*row;
  };
  const auto type = config.find("model_type");
  if (type != config.end() && type->is_string()) return by(&Architecture::model_type, text_or_empty(*type));
  const auto classes = config.find("architectures");
  if (classes == config.end() || !classes->is_array() || classes->empty()) return nullptr;
  return by(&Architecture::class_name, text_or_empty(classes->front()));
}

Role role_of(const Architecture* architecture, std::string_view tensor_name, std::span<const std::int64_t> shape) {
  if (!architecture) return general_role(tensor_name, shape);
  const auto row = std::ranges::find_if(architecture->tensors,
                                        [&](const TensorPattern& t) { return matches(t.pattern, tensor_name); });
  return row == architecture->tensors.end() ? Role::kUnknown : row->role;
}

std::optional<Dtype> declared_dtype(const nlohmann::json& config) {
  if (!config.is_object()) return std::nullopt;
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto value = config.find(key);
    if (value == config.end() || !value->is_string()) continue;
    std::string_view text = text_or_empty(*value);
    if (text.starts_with("torch.")) text.remove_prefix(6);
    return dtype_from_name(text);
  }
  return std::nullopt;
}

}  // namespace halfbyte::models
