#include "models/architectures/architecture.h"

#include <algorithm>
#include <array>

#include "models/architectures/llama.h"

namespace halfbyte::models {
namespace {

constexpr auto kRoleNames =
    std::to_array<std::string_view>({"linear", "embedding", "head", "norm", "bias", "buffer", "unknown"});

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

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
    {"router", Role::kUnknown},
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

}  // namespace

std::string_view name(Role role) noexcept { return kRoleNames[static_cast<std::size_t>(role)]; }

bool matches(std::string_view pattern, std::string_view name) noexcept {
  while (!pattern.empty()) {
    if (pattern.starts_with("{}")) {
      const auto digits = static_cast<std::size_t>(std::ranges::find_if_not(name, is_digit) - name.begin());
      if (digits == 0) return false;
      pattern.remove_prefix(2);
      name.remove_prefix(digits);
    } else {
      if (name.empty() || name.front() != pattern.front()) return false;
      pattern.remove_prefix(1);
      name.remove_prefix(1);
    }
  }
  return name.empty();
}

std::span<const Architecture> architectures() noexcept {
  static const std::array rows = {kLlama};
  return rows;
}

const Architecture* find_architecture(const nlohmann::json& config) {
  if (!config.is_object()) return nullptr;
  const auto by = [](std::string_view Architecture::*key, std::string_view wanted) -> const Architecture* {
    const auto row = std::ranges::find(architectures(), wanted, key);
    return row == architectures().end() ? nullptr : &*row;
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
