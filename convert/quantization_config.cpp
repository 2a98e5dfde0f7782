#include "convert/quantization_config.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "loader/files/derive.h"

namespace halfbyte::convert {
namespace {

using models::Role;
using nlohmann::ordered_json;

// (bits, asymmetric, group size; 0: one scale a row) -> modules.
using GroupKey = std::tuple<int, bool, std::int64_t>;
using Groups = std::map<GroupKey, std::vector<std::string>>;

std::string module_of(const std::string& tensor) {
  return tensor.substr(0, tensor.size() - std::string_view(".weight").size());
}

// Rows of one group each are called channels only where no single group size would cover them all.
bool is_per_channel(const files::Checkpoint& source, const Plan& plan) {
  std::set<std::int64_t> sizes;
  for (const PlannedTensor& planned : plan.tensors) {
    if (!planned.scheme) continue;
    if (planned.group_size != source.tensors[planned.source].shape[1]) return false;
    sizes.insert(planned.group_size);
  }
  return sizes.size() > 1 || (sizes.size() == 1 && !std::ranges::count(kGroupSizes, *sizes.begin()));
}

Groups groups_of(const files::Checkpoint& source, const Plan& plan) {
  const bool is_channel = is_per_channel(source, plan);
  Groups out;
  for (const PlannedTensor& planned : plan.tensors) {
    if (!planned.scheme) continue;
    const std::string& name = source.tensors[planned.source].name;
    out[{planned.scheme->bits, planned.scheme->has_zero_point, is_channel ? 0 : planned.group_size}].push_back(
        module_of(name));
  }
  return out;
}

// Every module that may be a Linear and was kept: readers expect packed parts of any that is not named.
std::set<std::string> ignored_modules(const files::Checkpoint& source, const Plan& plan) {
  std::set<std::string> out;
  for (const PlannedTensor& planned : plan.tensors) {
    const files::StoredTensor& tensor = source.tensors[planned.source];
    const bool may_be_linear = tensor.name.ends_with(".weight") && tensor.shape.size() == 2 &&
                               planned.role != Role::kEmbedding && planned.role != Role::kNorm;
    if (!planned.scheme && may_be_linear) out.insert(module_of(tensor.name));
  }
  for (const auto& [alias, owner] : files::declared_ties(source)) out.insert(module_of(alias));
  const auto is_tied = source.config.find("tie_word_embeddings");
  if (!source.architecture && is_tied != source.config.end() && *is_tied == true) out.insert("lm_head");
  return out;
}

ordered_json group(const GroupKey& key, const ordered_json& targets) {
  const auto& [bits, is_asymmetric, group_size] = key;
  const bool is_channel = group_size == 0;
  const ordered_json weights{{"num_bits", bits},
                             {"type", "int"},
                             {"symmetric", !is_asymmetric},
                             {"strategy", is_channel ? "channel" : "group"},
                             {"group_size", is_channel ? ordered_json(nullptr) : ordered_json(group_size)},
                             {"block_structure", nullptr},
                             {"dynamic", false},
                             {"actorder", nullptr}};
  return {{"targets", targets},
          {"weights", weights},
          {"input_activations", nullptr},
          {"output_activations", nullptr},
          {"format", "pack-quantized"}};
}

// Source: transformers, utils/quantization_config.py, CompressedTensorsConfig.
ordered_json compressed_tensors(const files::Checkpoint& source, const Plan& plan) {
  const Groups groups = groups_of(source, plan);
  ordered_json config_groups = ordered_json::object();
  for (const auto& [key, modules] : groups) {
    const ordered_json targets = groups.size() == 1 ? ordered_json::array({"Linear"}) : ordered_json(modules);
    config_groups["group_" + std::to_string(config_groups.size())] = group(key, targets);
  }
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"config_groups", std::move(config_groups)},
          {"ignore", ignored_modules(source, plan)},
          {"kv_cache_scheme", nullptr}};
}

// The scheme of most tensors and the dtype to multiply in are hints: each tensor's quant_state says what it is.
// Source: transformers, utils/quantization_config.py, BitsAndBytesConfig.
ordered_json bitsandbytes(const files::Checkpoint& source, const Plan& plan, const PlannedTensor& first) {
  return {{"quant_method", "bitsandbytes"},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"bnb_4bit_quant_type", first.scheme->name},
          {"bnb_4bit_use_double_quant", first.is_nested},
          {"bnb_4bit_compute_dtype", name(source.tensors[first.source].dtype)},
          {"bnb_4bit_quant_storage", "uint8"},
          {"llm_int8_skip_modules", ignored_modules(source, plan)}};
}

}  // namespace

ordered_json quantization_config(const files::Checkpoint& source, const Plan& plan) {
  const auto first = std::ranges::find_if(plan.tensors, [](const PlannedTensor& planned) { return planned.scheme; });
  if (first == plan.tensors.end()) return nullptr;
  if (!plan.has_foreign_readers) return {{"quant_method", "halfbyte"}};  // refused by name elsewhere
  return first->scheme->layout == Layout::kBitsandbytes ? bitsandbytes(source, plan, *first)
                                                        : compressed_tensors(source, plan);
}

}  // namespace halfbyte::convert
