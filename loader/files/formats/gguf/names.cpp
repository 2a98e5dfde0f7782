#include "loader/files/formats/gguf/names.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace halfbyte::files {
namespace {

using models::Naming;
using models::Place;
using Module = GgufModule;

bool has_experts(const GgufFile& file) { return file.integer("llama.expert_count").value_or(0) > 0; }
bool has_fused_qkv(const GgufFile& file) { return file.find_tensor("blk.0.attn_qkv.weight") != nullptr; }
bool slides(const GgufFile& file) { return file.integer("olmo2.attention.sliding_window").value_or(0) > 0; }

// The norm before the MLP by the name that elsewhere is that of attention's result.
constexpr auto kNormAfterAttention =
    std::to_array<Module>({{.gguf = "post_attention_norm", .name = &Naming::mlp_norm}});

// The first that applies.
constexpr auto kFamilies = std::to_array<GgufFamily>({
    {.architecture = "llama", .model_type = "mixtral", .applies = has_experts, .has_metas_rotation = true},
    {.architecture = "llama", .model_type = "llama", .has_metas_rotation = true},
    {.architecture = "qwen2", .model_type = "qwen2"},
    {.architecture = "qwen3", .model_type = "qwen3"},
    {.architecture = "qwen3moe", .model_type = "qwen3_moe"},
    {.architecture = "phi3", .model_type = "phi3", .window = GgufWindow::kRequired},
    {.architecture = "gemma", .model_type = "gemma", .adds_one_to_norms = true},
    {.architecture = "gemma2",
     .model_type = "gemma2",
     .adds_one_to_norms = true,
     .window = GgufWindow::kRead,
     .wide_query_layers = 46},
    {.architecture = "gemma3",
     .model_type = "gemma3_text",
     .adds_one_to_norms = true,
     .window = GgufWindow::kSomeLayers,
     .full_every = 6,
     .wide_query_layers = 62},
    {.architecture = "chatglm", .model_type = "chatglm", .applies = has_fused_qkv},
    {.architecture = "chatglm", .model_type = "glm"},
    {.architecture = "glm4", .model_type = "glm4"},
    {.architecture = "glm4moe", .model_type = "glm4_moe", .modules = kNormAfterAttention},
    {.architecture = "olmo2",
     .model_type = "olmo3",
     .applies = slides,
     .window = GgufWindow::kSomeLayers,
     .full_every = 4},
    {.architecture = "olmo2", .model_type = "olmo2"},
    {.architecture = "exaone4", .model_type = "exaone4", .window = GgufWindow::kSomeLayers, .full_every = 4},
    {.architecture = "cohere2",
     .model_type = "cohere2",
     .window = GgufWindow::kSomeLayers,
     .full_every = 4,
     .norm_eps = "attention.layer_norm_epsilon"},
    {.architecture = "granite", .model_type = "granite", .has_metas_rotation = true},
    {.architecture = "smollm3", .model_type = "smollm3", .has_metas_rotation = true},
    {.architecture = "mistral3", .model_type = "ministral3", .has_metas_rotation = true},
    {.architecture = "seed_oss", .model_type = "seed_oss", .modules = kNormAfterAttention},
    {.architecture = "ernie4_5", .model_type = "ernie4_5"},
    {.architecture = "hunyuan-dense", .model_type = "hunyuan_v1_dense"},
    {.architecture = "minimax-m2", .model_type = "minimax_m2"},
    {.architecture = "phimoe", .model_type = "phimoe", .window = GgufWindow::kRequired},
});

// The table of tensors says which are the model's, and what each is for. Of two rows of one name the first that the
// family has: up and gate may be fused.
constexpr auto kModules = std::to_array<Module>({
    {.gguf = "token_embd", .name = &Naming::embedding},
    {.gguf = "output_norm", .name = &Naming::final_norm},
    {.gguf = "output", .name = &Naming::head},
    {.gguf = "attn_norm", .name = &Naming::input_norm},
    {.gguf = "post_attention_norm", .name = &Naming::attention_output_norm},
    {.gguf = "ffn_norm", .name = &Naming::mlp_norm},
    {.gguf = "post_ffw_norm", .name = &Naming::mlp_output_norm},
    {.gguf = "attn_q", .name = &Naming::query, .heads = HeadRows::kQuery},
    {.gguf = "attn_k", .name = &Naming::key, .heads = HeadRows::kKey},
    {.gguf = "attn_v", .name = &Naming::value},
    {.gguf = "attn_qkv", .name = &Naming::fused_qkv},
    {.gguf = "attn_output", .name = &Naming::attention_output},
    {.gguf = "attn_q_norm", .name = &Naming::query_norm},
    {.gguf = "attn_k_norm", .name = &Naming::key_norm},
    {.gguf = "ffn_up", .name = &Naming::fused_gate_up},
    {.gguf = "ffn_up", .name = &Naming::up},
    {.gguf = "ffn_gate", .name = &Naming::gate},
    {.gguf = "ffn_down", .name = &Naming::down},
    {.gguf = "ffn_gate_inp", .name = &Naming::router},
    {.gguf = "ffn_gate_exps", .name = &Naming::expert_gate},
    {.gguf = "ffn_up_exps", .name = &Naming::expert_up},
    {.gguf = "ffn_down_exps", .name = &Naming::expert_down},
    {.gguf = "exp_probs_b", .name = &Naming::correction},
    {.gguf = "ffn_gate_shexp", .name = &Naming::shared_gate},
    {.gguf = "ffn_up_shexp", .name = &Naming::shared_up},
    {.gguf = "ffn_down_shexp", .name = &Naming::shared_down},
});

// Files of 2023 and early 2024 have a tensor of each expert: "ffn_gate.3".
constexpr auto kSingleExperts = std::to_array<std::pair<std::string_view, models::ModuleName>>({
    {"ffn_gate.", &Naming::expert_gate},
    {"ffn_up.", &Naming::expert_up},
    {"ffn_down.", &Naming::expert_down},
});

bool is_number(std::string_view text) noexcept {
  return !text.empty() && text.size() < 7 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_models(const Module& row) noexcept { return models::row_of(row.name).place == Place::kModel; }

// `layer`: its number; empty: the model's.
std::optional<GgufName> single_expert(std::string_view module, std::string_view layer, const Naming& naming) {
  for (const auto& [prefix, name] : kSingleExperts) {
    if (!module.starts_with(prefix) || naming.moe.empty()) continue;
    const std::string_view expert = module.substr(prefix.size());
    if (is_number(expert))
      return GgufName{path_above(naming, Place::kExpert, layer, expert) + std::string(naming.*name)};
  }
  return std::nullopt;
}

// The family's own rows, and those of most for what it has none of.
std::vector<Module> modules_of(const GgufFamily& family) {
  std::vector<Module> out(family.modules.begin(), family.modules.end());
  std::ranges::copy_if(kModules, std::back_inserter(out), [&](const Module& row) {
    return std::ranges::find(family.modules, row.name, &Module::name) == family.modules.end();
  });
  return out;
}

// `kind`: ".weight" or ".bias". A tensor that is no module's has neither in transformers, and the latter in GGUF.
std::optional<GgufName> module_name(const std::vector<Module>& modules, std::string_view module, std::string_view kind,
                                    std::string_view layer, const Naming& naming) {
  for (const Module& row : modules) {
    const std::string_view name = naming.*(row.name);
    if (row.gguf != module || name.empty() || is_models(row) != layer.empty()) continue;
    const models::TensorRow& tensor = models::row_of(row.name);
    const bool is_tensor = tensor.suffix().empty();
    if (!has_place(naming, tensor.place) || (is_tensor && kind != ".bias")) return std::nullopt;
    GgufName out{path_above(naming, tensor.place, layer, "{}") + std::string(name), tensor.place == Place::kExpert,
                 tensor.role == models::Role::kNorm, row.heads};
    if (!is_tensor) out.name += kind;
    return out;
  }
  auto expert = single_expert(module, layer, naming);
  if (expert) expert->name += kind;
  return expert;
}

std::optional<GgufName> name_among(const std::vector<Module>& modules, std::string_view gguf_name,
                                   const Naming& naming) {
  const std::size_t dot = gguf_name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view kind = gguf_name.substr(dot);
  if (kind != ".weight" && kind != ".bias") return std::nullopt;
  std::string_view module = gguf_name.substr(0, dot);
  std::string_view layer;
  if (module.starts_with("blk.")) {
    const std::size_t end = module.find('.', 4);
    if (end == std::string_view::npos || !is_number(module.substr(4, end - 4))) return std::nullopt;
    layer = module.substr(4, end - 4);
    module.remove_prefix(end + 1);
  }
  return module_name(modules, module, kind, layer, naming);
}

}  // namespace

const GgufFamily* find_gguf_family(const GgufFile& file) {
  const std::string architecture = file.text("general.architecture").value_or("");
  const auto row = std::ranges::find_if(kFamilies, [&](const GgufFamily& family) {
    return family.architecture == architecture && (!family.applies || family.applies(file));
  });
  return row == kFamilies.end() ? nullptr : &*row;
}

const models::Family& family_of(const GgufFamily& family) {
  return **std::ranges::find(models::families(), family.model_type, &models::Family::model_type);
}

std::optional<GgufName> name_of(std::string_view gguf_name, const GgufFamily& family, const Naming& naming) {
  return name_among(modules_of(family), gguf_name, naming);
}

const GgufFamily* gguf_family_of(std::string_view model_type) noexcept {
  const std::string_view wanted = model_type == "mistral" ? "llama" : model_type;  // llama.cpp knows no difference
  const auto row = std::ranges::find(kFamilies, wanted, &GgufFamily::model_type);
  return row == kFamilies.end() ? nullptr : &*row;
}

std::vector<std::pair<std::string, GgufName>> gguf_names(const GgufFamily& family, const Naming& naming,
                                                         std::int64_t layers) {
  const std::vector<Module> modules = modules_of(family);
  std::vector<std::pair<std::string, GgufName>> out;
  const auto add = [&](const std::string& module) {
    for (const char* kind : {".weight", ".bias"}) {
      if (auto name = name_among(modules, module + kind, naming)) out.emplace_back(module + kind, std::move(*name));
    }
  };
  for (const Module& row : modules) {
    if (is_models(row)) add(std::string(row.gguf));
  }
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (const Module& row : modules) {
      const bool is_second_of_name = row.name == &Naming::up && !naming.fused_gate_up.empty();
      const bool has_row = !(naming.*(row.name)).empty() && !is_second_of_name;
      if (!is_models(row) && has_row) add("blk." + std::to_string(layer) + "." + std::string(row.gguf));
    }
  }
  return out;
}

}  // namespace halfbyte::files
