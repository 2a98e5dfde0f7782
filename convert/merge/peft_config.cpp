#include "convert/merge/peft_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/json_text.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using nlohmann::ordered_json;
using Pattern = std::vector<std::pair<std::string, double>>;

// Settings of which any value but null, false, "none" and nothing in it makes other tensors, or other products.
constexpr auto kOtherKinds = std::to_array<std::string_view>(
    {"bias", "modules_to_save", "fan_in_fan_out", "lora_bias", "layer_replication", "trainable_token_indices",
     "target_parameters", "megatron_config", "alora_invocation_tokens", "use_qalora", "use_bdlora", "arrow_config",
     "kasa_config", "monteclora_config", "velora_config"});
// Initial values of init_lora_weights that take from the model's own weights.
constexpr auto kOtherBases = std::to_array<std::string_view>({"pissa", "olora", "corda", "loftq", "lora_ga"});

struct File {
  files::fs::path path;
  ordered_json json;

  [[noreturn]] void fail(ErrorCode code, const std::string& problem) const {
    throw Error(code, files::printable_path(path) + ": " + problem);
  }
  [[noreturn]] void refuse(const std::string& key) const {
    fail(ErrorCode::kUnsupported,
         key + " " + files::printable(json.at(key).dump(), 100) + " is not read: LoRA and DoRA beside Linears are");
  }
};

bool is_nothing(const ordered_json& value) {
  return value.is_null() || value == false || value == "none" || (value.is_structured() && value.empty());
}

void check_kind(const File& file) {
  if (!file.json.contains("peft_type")) file.fail(ErrorCode::kCorrupt, "there is no peft_type");
  if (file.json.at("peft_type") != "LORA") file.refuse("peft_type");
  for (const std::string_view name : kOtherKinds) {
    const auto found = file.json.find(name);
    if (found != file.json.end() && !is_nothing(*found)) file.refuse(std::string(name));
  }
  const auto initial = file.json.find("init_lora_weights");
  if (initial == file.json.end() || !initial->is_string()) return;
  const auto& word = initial->get_ref<const std::string&>();
  if (std::ranges::any_of(kOtherBases, [&](std::string_view base) { return word.starts_with(base); }))
    file.refuse("init_lora_weights");
}

// Peft's are regular expressions that match a module's last words; what people write are names.
Pattern pattern_of(const File& file, const char* key) {
  Pattern out;
  const auto found = file.json.find(key);
  if (found == file.json.end() || found->is_null()) return out;
  for (const auto& [name, value] : found->get_ref<const ordered_json::object_t&>()) {
    const std::string_view words = std::string_view(name).substr(name.starts_with('^') ? 1 : 0);
    const bool is_name = !words.empty() && std::ranges::all_of(words, [](const char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    });
    if (!is_name)
      file.fail(ErrorCode::kUnsupported,
                std::string(key) + ": " + files::in_quotes(name) + " is a pattern; names of modules are read");
    out.emplace_back(name, value.get<double>());
  }
  return out;
}

bool names(const std::string& pattern, const std::string& module) {
  if (pattern.starts_with('^')) return module == std::string_view(pattern).substr(1);
  return module == pattern || module.ends_with("." + pattern);
}

double value_for(const Pattern& pattern, const std::string& module, double otherwise) {
  const auto found = std::ranges::find_if(pattern, [&](const auto& pair) { return names(pair.first, module); });
  return found == pattern.end() ? otherwise : found->second;
}

}  // namespace

std::int64_t PeftConfig::rank_of(const std::string& module) const {
  return static_cast<std::int64_t>(value_for(ranks, module, static_cast<double>(rank)));
}

double PeftConfig::scaling_of(const std::string& module) const {
  const auto its_rank = static_cast<double>(rank_of(module));
  return value_for(alphas, module, alpha) / (is_rank_stabilised ? std::sqrt(its_rank) : its_rank);
}

PeftConfig read_peft_config(const files::fs::path& directory) {
  File file{directory / kAdapterConfigFile, {}};
  file.json = files::parse_json<ordered_json>(files::read_text(file.path, files::kConfigLimits.max_bytes),
                                              files::printable_path(file.path), files::kConfigLimits);
  try {
    if (!file.json.is_object()) file.fail(ErrorCode::kCorrupt, "is no JSON object");
    check_kind(file);
    PeftConfig out{.rank = file.json.at("r").get<std::int64_t>(),
                   .alpha = file.json.at("lora_alpha").get<double>(),
                   .is_rank_stabilised = file.json.value("use_rslora", false),
                   .is_weight_decomposed = file.json.value("use_dora", false),
                   .ranks = pattern_of(file, "rank_pattern"),
                   .alphas = pattern_of(file, "alpha_pattern")};
    const auto is_rank = [](const auto& pair) { return pair.second >= 1; };
    if (out.rank < 1 || !std::ranges::all_of(out.ranks, is_rank)) file.fail(ErrorCode::kCorrupt, "a rank below 1");
    return out;
  } catch (const nlohmann::json::exception& error) {
    file.fail(ErrorCode::kCorrupt, files::json_problem(error));
  }
}

}  // namespace halfbyte::convert
