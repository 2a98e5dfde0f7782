#include "models/architectures/architecture.h"

#include <algorithm>
#include <array>
#include <deque>

#include <nlohmann/json.hpp>

#include "models/architectures/tensor_table.h"

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

// Where the text part of a model that sees or hears too stands: as transformers 5 has it, and as those before.
struct TextPath {
  std::string_view text;
  std::string_view model;  // instead of "model."
  std::string_view head;   // before the head's name
};
constexpr auto kTextPaths = std::to_array<TextPath>({{"model.language_model", "model.language_model.", ""},
                                                     {"language_model", "language_model.model.", "language_model."}});

// Names are made once, and stay.
std::string_view kept(std::string name) {
  static std::deque<std::string> names;
  return names.emplace_back(std::move(name));
}

Naming below(const TextPath& path, Naming names) {
  constexpr std::string_view kModel = "model.";
  names.text = path.text;
  for (const ModuleName module : {&Naming::embedding, &Naming::layers, &Naming::final_norm, &Naming::rotary}) {
    std::string_view& name = names.*module;
    if (name.starts_with(kModel)) name = kept(std::string(path.model) + std::string(name.substr(kModel.size())));
  }
  if (!path.head.empty()) names.head = kept(std::string(path.head) + std::string(names.head));
  return names;
}

std::vector<Naming> namings_of(const Family& family) {
  std::vector<Naming> out(family.namings.begin(), family.namings.end());
  for (const TextPath& path : kTextPaths) {
    for (const Naming& names : family.namings) {
      if (family.wrapper_type) out.push_back(below(path, names));
    }
  }
  return out;
}

// The text part of a configuration, or null.
const nlohmann::json* text_part(const nlohmann::json& config) {
  const auto part = config.is_object() ? config.find("text_config") : config.end();
  return part != config.end() && part->is_object() ? &*part : nullptr;
}

// Tokens and ties are said for the whole, or for the part.
nlohmann::json with_what_the_whole_says(const nlohmann::json& config, const nlohmann::json& part) {
  nlohmann::json out = part;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (config.contains(key) && !config[key].is_null()) out[key] = config[key];
  }
  if (config.contains("tie_word_embeddings")) out["tie_word_embeddings"] = config["tie_word_embeddings"];
  return out;
}

std::vector<Architecture> all_architectures() {
  std::vector<Architecture> out;
  for (const Family* family : families()) {
    Architecture row{family->model_type, family->class_name, family, namings_of(*family), {}};
    for (const Naming& naming : row.namings) {
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
  if (rope.type == RopeType::kProportional) {
    inputs["turning_dim"] = rope.turning_dim;
    return inputs;
  }
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
  const nlohmann::json* part = family->wrapper_type ? text_part(config) : nullptr;
  if (!part) return parse_config(*family, ConfigReader(config, "config.json"));
  const nlohmann::json whole = with_what_the_whole_says(config, *part);
  ModelConfig out = parse_config(*family, ConfigReader(whole, "config.json text_config"));
  out.is_text_part = true;
  return out;
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
  if (namings.size() == 1) return;
  std::ptrdiff_t most = -1;
  const Naming* best = config.naming;
  // The usual names are those of a model that is text alone, and may be those of a part that was taken out.
  for (const Naming& naming : namings) {
    if (!config.is_text_part && !naming.text.empty()) continue;
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

namespace {

// A text part that does not say its model_type is what the whole's stands for.
const Architecture* find_text_part(const nlohmann::json& part, std::string_view whole) {
  const auto type = part.find("model_type");
  const std::string_view name = type == part.end() ? std::string_view() : text_or_empty(*type);
  const auto row = std::ranges::find_if(architectures(), [&](const Architecture& each) {
    return each.family->wrapper_type && (name.empty() ? each.family->wrapper_type == whole : each.model_type == name);
  });
  return row == architectures().end() ? nullptr : &*row;
}

}  // namespace

const Architecture* find_architecture(const nlohmann::json& config) {
  if (!config.is_object()) return nullptr;
  const auto by = [&](std::string_view Architecture::*key, std::string_view wanted) -> const Architecture* {
    const auto row = std::ranges::find(architectures(), wanted, key);
    if (row == architectures().end()) return nullptr;
    const char* telling = row->family->telling_key;
    return telling && !config.contains(telling) ? nullptr : &*row;
  };
  const auto type = config.find("model_type");
  const std::string_view name = type != config.end() ? text_or_empty(*type) : std::string_view();
  if (const Architecture* row = name.empty() ? nullptr : by(&Architecture::model_type, name)) return row;
  if (const nlohmann::json* part = text_part(config)) return find_text_part(*part, name);
  const auto classes = config.find("architectures");
  if (!name.empty() || classes == config.end() || !classes->is_array() || classes->empty()) return nullptr;
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
  const nlohmann::json* part = text_part(config);
  return part ? declared_dtype(*part) : std::nullopt;
}

}  // namespace halfbyte::models
