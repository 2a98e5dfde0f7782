#include "convert/quantization_config.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include <nlohmann/json.hpp>

#include "loader/files/derive.h"

namespace halfbyte::convert {
namespace {

using files::TensorRecord;
using models::Role;
using nlohmann::ordered_json;
using Records = std::span<const TensorRecord>;

// (bits, asymmetric, group size; 0: one scale a row) -> modules.
using GroupKey = std::tuple<int, bool, std::int64_t>;
using Groups = std::map<GroupKey, std::vector<std::string>>;

// Of bitsandbytes, whose blocks have 32 values or more.
constexpr std::int64_t kLeastBlock = 32;

Groups groups_of(Records records) {
  const bool is_channel = is_per_channel(records);
  Groups out;
  for (const TensorRecord& record : records) {
    if (!record.scheme) continue;
    out[{record.scheme->bits, record.scheme->decode == Decode::kZeroPoint, is_channel ? 0 : record.group_size}]
        .push_back(module_of(record.name));
  }
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
ordered_json compressed_tensors(const files::Checkpoint& source, Records records) {
  const Groups groups = groups_of(records);
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
          {"ignore", kept_modules(source, records)},
          {"kv_cache_scheme", nullptr}};
}

// The scheme of most tensors and the dtype to multiply in are hints: each tensor's quant_state says what it is.
// Source: transformers, utils/quantization_config.py, BitsAndBytesConfig.
ordered_json bitsandbytes(const files::Checkpoint& source, Records records, const TensorRecord& first) {
  return {{"quant_method", "bitsandbytes"},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"bnb_4bit_quant_type", first.scheme->name},
          {"bnb_4bit_use_double_quant", first.nested_offset.has_value()},
          {"bnb_4bit_compute_dtype", name(first.original_dtype.value_or(Dtype::kFloat32))},
          {"bnb_4bit_quant_storage", "uint8"},
          {"llm_int8_skip_modules", kept_modules(source, records)}};
}

}  // namespace

std::string module_of(const std::string& tensor) {
  return tensor.substr(0, tensor.size() - std::string_view(".weight").size());
}

bool is_per_channel(Records records) {
  std::set<std::int64_t> sizes;
  for (const TensorRecord& record : records) {
    if (!record.scheme) continue;
    if (record.group_size != record.shape.back()) return false;
    sizes.insert(record.group_size);
  }
  return sizes.size() > 1 || (sizes.size() == 1 && !std::ranges::count(kGroupSizes, *sizes.begin()));
}

std::set<std::string> kept_modules(const files::Checkpoint& source, Records records) {
  std::set<std::string> out;
  for (const TensorRecord& record : records) {
    const Role role = models::role_of(source.architecture, record.name, record.shape);
    // Of an unknown family a head may pass for an embedding, and naming an embedding does no harm.
    const bool is_embedding = role == Role::kEmbedding && source.architecture;
    const bool may_be_linear =
        record.name.ends_with(".weight") && record.shape.size() == 2 && !is_embedding && role != Role::kNorm;
    if (record.scheme || !may_be_linear) continue;
    out.insert(module_of(record.name));
    if (role == Role::kEmbedding) out.insert("lm_head");  // as which transformers may have it
  }
  for (const auto& [alias, owner] : files::declared_ties(source)) out.insert(module_of(alias));
  const auto is_tied = source.config->find("tie_word_embeddings");
  if (!source.architecture && is_tied != source.config->end() && *is_tied == true) out.insert("lm_head");
  return out;
}

std::string foreign_reader_obstacle(const files::Checkpoint& source, Records records) {
  std::map<Layout, std::string_view> families;
  std::string own;
  for (const TensorRecord& record : records) {
    if (!record.scheme) continue;
    families.emplace(record.scheme->layout, record.scheme->name);
    if (!record.scheme->has_foreign_readers) own = record.scheme->name;
    if (record.scheme->layout == Layout::kBitsandbytes && record.group_size < kLeastBlock)
      own = std::string(record.scheme->name) + " in groups of " + std::to_string(record.group_size);
    if (record.parts.has(files::Part::kColumnOrder)) own = "columns in an order of their own";
    if (record.shape.size() == 3) own = "experts stacked in one tensor, packed";
    if (models::role_of(source.architecture, record.name, record.shape) == Role::kEmbedding) own = "a packed embedding";
  }
  if (!own.empty() || families.size() < 2) return own;
  return std::string(families[Layout::kPackQuantized]) + " (compressed-tensors) and " +
         std::string(families[Layout::kBitsandbytes]) + " (bitsandbytes) in one checkpoint";
}

ordered_json quantization_config(const files::Checkpoint& source, Records records) {
  const auto first = std::ranges::find_if(records, [](const TensorRecord& record) { return record.scheme; });
  if (first == records.end()) return nullptr;
  if (!foreign_reader_obstacle(source, records).empty())
    return {{"quant_method", "halfbyte"}};  // refused by name elsewhere
  return first->scheme->layout == Layout::kBitsandbytes ? bitsandbytes(source, records, *first)
                                                        : compressed_tensors(source, records);
}

ordered_json quantization_config(const files::Checkpoint& source, const Plan& plan) {
  return quantization_config(source, planned_records(source, plan));
}

}  // namespace halfbyte::convert
