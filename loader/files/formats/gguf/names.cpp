#include "loader/files/formats/gguf/names.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace halfbyte::files {
namespace {

using models::Naming;
using models::Place;
using models::Role;

// Files of 2023 and early 2024 have a tensor of each expert: "ffn_gate.3".
constexpr auto kSingleExperts = std::to_array<std::pair<std::string_view, models::ModuleName>>({
    {"ffn_gate.", &Naming::expert_gate},
    {"ffn_up.", &Naming::expert_up},
    {"ffn_down.", &Naming::expert_down},
});
constexpr std::string_view kFusedExperts = "ffn_gate_up_exps.weight";

bool is_number(std::string_view text) noexcept {
  return !text.empty() && text.size() < 7 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_models(const GgufModule& row) noexcept { return models::row_of(row.name).place == Place::kModel; }

bool are_stacked(const Naming& naming) noexcept { return !naming.stacked_gate_up.empty(); }

// Whether a model of this naming may have the module: of two spellings of experts, and of two kinds of attention that
// have the same names, it has one.
bool is_named(const GgufModule& row, const Naming& naming) noexcept {
  const Place place = models::row_of(row.name).place;
  if ((naming.*(row.name)).empty() || !has_place(naming, place)) return false;
  if (place == Place::kAttention) return !has_place(naming, Place::kLatent);
  return place != Place::kExpert || !are_stacked(naming);
}

// The family's own rows, and those of most for what it has none of.
std::vector<GgufModule> modules_of(const GgufFamily& family, const Naming& naming) {
  std::vector<GgufModule> out;
  const auto add = [&](const GgufModule& row) {
    if (is_named(row, naming)) out.push_back(row);
  };
  std::ranges::for_each(family.modules, add);
  for (const GgufModule& row : usual_gguf_modules()) {
    if (std::ranges::find(family.modules, row.name, &GgufModule::name) == family.modules.end()) add(row);
  }
  return out;
}

// What GGUF's name of a tensor ends with.
std::vector<std::string_view> suffixes_of(const GgufModule& row) {
  if (models::row_of(row.name).suffix().empty()) return {row.suffix};
  return {".weight", ".bias"};
}

GgufValues values_of(const GgufModule& row, const GgufFamily& family) {
  const bool is_norm = models::row_of(row.name).role == Role::kNorm && row.name != &Naming::delta_norm;
  const bool is_shifted = family.adds_one_to_norms && is_norm;
  return is_shifted ? GgufValues::kPlusOne : row.values;
}

}  // namespace

GgufNames::GgufNames(const GgufFamily& family, const Naming& naming)
    : family_(family), naming_(naming), modules_(modules_of(family, naming)) {}

GgufName GgufNames::name_by(const GgufModule& row, std::string_view suffix, std::string_view layer) const {
  const models::TensorRow& tensor = models::row_of(row.name);
  GgufName out{.name = path_above(naming_, tensor.place, layer, "{}") + std::string(naming_.*(row.name)),
               .is_stack = tensor.place == Place::kExpert,
               .role = tensor.role,
               .layout = row.layout,
               .values = values_of(row, family_)};
  if (row.is_turned && family_.has_metas_rotation) out.layout = turned_heads;
  if (!tensor.suffix().empty()) {
    out.name += suffix;
    if (suffix == ".bias") out.role = Role::kBias;
  }
  out.is_reshaped = out.layout || tensor.role == Role::kConvolution || row.name == &Naming::shared_router;
  return out;
}

// `rest`: what follows "blk.N.", or all. `layer`: its number; empty: the model's.
std::optional<GgufName> GgufNames::module_name(std::string_view rest, std::string_view layer) const {
  for (const GgufModule& row : modules_) {
    if (is_models(row) != layer.empty() || !rest.starts_with(row.gguf)) continue;
    for (const std::string_view suffix : suffixes_of(row)) {
      if (rest.substr(row.gguf.size()) == suffix) return name_by(row, suffix, layer);
    }
  }
  return std::nullopt;
}

std::optional<GgufName> GgufNames::single_expert(std::string_view rest, std::string_view layer) const {
  const std::size_t dot = rest.rfind('.');
  for (const auto& [prefix, name] : kSingleExperts) {
    if (!rest.starts_with(prefix) || naming_.moe.empty() || are_stacked(naming_)) continue;
    const std::string_view expert = rest.substr(prefix.size(), dot - prefix.size());
    if (!is_number(expert)) continue;
    std::string full = path_above(naming_, Place::kExpert, layer, expert) + std::string(naming_.*name);
    return GgufName{.name = full + std::string(rest.substr(dot))};
  }
  return std::nullopt;
}

std::optional<GgufName> GgufNames::fused_experts(std::string_view rest, std::string_view layer) const {
  if (rest != kFusedExperts || naming_.moe.empty() || are_stacked(naming_)) return std::nullopt;
  const std::string above = path_above(naming_, Place::kExpert, layer, "{}");
  return GgufName{.name = above + std::string(naming_.expert_gate) + ".weight",
                  .is_stack = true,
                  .second = above + std::string(naming_.expert_up) + ".weight"};
}

std::optional<GgufName> GgufNames::find(std::string_view gguf_name) const {
  std::string_view layer;
  if (gguf_name.starts_with("blk.")) {
    const std::size_t end = gguf_name.find('.', 4);
    if (end == std::string_view::npos || !is_number(gguf_name.substr(4, end - 4))) return std::nullopt;
    layer = gguf_name.substr(4, end - 4);
    gguf_name.remove_prefix(end + 1);
  }
  if (auto out = module_name(gguf_name, layer)) return out;
  if (auto out = fused_experts(gguf_name, layer)) return out;
  return single_expert(gguf_name, layer);
}

std::vector<std::pair<std::string, GgufName>> gguf_names(const GgufFamily& family, const Naming& naming,
                                                         std::int64_t layers) {
  const GgufNames names(family, naming);
  std::vector<std::pair<std::string, GgufName>> out;
  const auto add = [&](const GgufModule& row, const std::string& above) {
    for (const std::string_view suffix : suffixes_of(row)) {
      const std::string gguf = above + std::string(row.gguf) + std::string(suffix);
      if (auto name = names.find(gguf)) out.emplace_back(gguf, std::move(*name));
    }
  };
  for (const GgufModule& row : names.modules()) {
    if (is_models(row)) add(row, "");
  }
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (const GgufModule& row : names.modules()) {
      const bool is_second_of_name = row.name == &Naming::up && !naming.fused_gate_up.empty();
      if (!is_models(row) && !row.is_read_only && !is_second_of_name) add(row, "blk." + std::to_string(layer) + ".");
    }
  }
  return out;
}

}  // namespace halfbyte::files
