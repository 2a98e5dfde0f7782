#include "convert/export/format.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/export/plan.h"
#include "convert/quantization_config.h"
#include "loader/files/derive.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using files::TensorRecord;
using nlohmann::ordered_json;

constexpr auto kCompressedTensorsSchemes =
    std::to_array<SchemeId>({SchemeId::kSymInt4, SchemeId::kAsymInt4, SchemeId::kSymInt8});
constexpr auto kBitsandbytesSchemes = std::to_array<SchemeId>({SchemeId::kNf4, SchemeId::kFp4});
constexpr auto kGptqSchemes = kCompressedTensorsSchemes;
constexpr auto kAwqSchemes = std::to_array<SchemeId>({SchemeId::kSymInt4, SchemeId::kAsymInt4});

ordered_json own_config(const files::Checkpoint& source, const ExportPlan& plan) {
  return quantization_config(source, plan.results());
}

bool is_head(const files::Checkpoint& source, const TensorRecord& record) {
  return models::role_of(source.architecture, record.name, record.shape) == models::Role::kHead;
}

// Of a regular expression that matches `text` alone.
std::string expression_of(const std::string& text) {
  std::string out = "^";
  for (const char c : text) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') out += '\\';
    out += c;
  }
  return out + "$";
}

std::int64_t group_size_of(const ExportFacts& facts) { return facts.group_size == 0 ? -1 : facts.group_size; }

// A Linear of the decoder's layers that is not packed. GPTQModel and vLLM are told of each in "dynamic"; transformers
// takes those for packed that "modules_in_block_to_quantize" names, or all.
void add_kept(const files::Checkpoint& source, const ExportPlan& plan, ordered_json& out) {
  const std::vector<TensorRecord> records = plan.results();
  ordered_json packed = ordered_json::array(), dynamic = ordered_json::object();
  std::set<std::string> kept = kept_modules(source, records);
  for (const TensorRecord& record : records) {
    if (record.scheme) packed.push_back(module_of(record.name));
    if (is_head(source, record)) kept.erase(module_of(record.name));
  }
  for (const auto& [alias, owner] : files::declared_ties(source)) kept.erase(module_of(alias));
  for (const std::string& module : kept) dynamic["-:" + expression_of(module)] = ordered_json::object();
  if (dynamic.empty()) return;
  out["dynamic"] = std::move(dynamic);
  out["modules_in_block_to_quantize"] = ordered_json::array({std::move(packed)});
}

// Source: GPTQModel, quantization/config.py, and transformers, utils/quantization_config.py, GPTQConfig.
ordered_json gptq_config(const files::Checkpoint& source, const ExportPlan& plan) {
  ordered_json out{{"quant_method", "gptq"},
                   {"bits", plan.facts.bits},
                   {"group_size", group_size_of(plan.facts)},
                   {"desc_act", false},
                   {"sym", plan.facts.is_symmetric},
                   {"lm_head", false},
                   {"checkpoint_format", plan.facts.is_gptq_v2 ? "gptq_v2" : "gptq"},
                   {"pack_dtype", "int32"}};
  add_kept(source, plan, out);
  return out;
}

// Source: AutoAWQ, models/_config.py, and transformers, utils/quantization_config.py, AwqConfig.
ordered_json awq_config(const files::Checkpoint& source, const ExportPlan& plan) {
  return {{"quant_method", "awq"},
          {"bits", plan.facts.bits},
          {"group_size", group_size_of(plan.facts)},
          {"zero_point", true},
          {"version", "gemm"},
          {"modules_to_not_convert", kept_modules(source, plan.results())}};
}

void add_gptq_notes(ExportPlan& plan) {
  if (plan.facts.is_gptq_v2)
    plan.notes.emplace_back(
        "some zero points are code 0, which version 1 of the format cannot say: written as gptq_v2, which GPTQModel, "
        "transformers with it, and newer vLLM read");
  if (!plan.facts.is_gptq_v2 && !plan.facts.is_symmetric)
    plan.notes.emplace_back("transformers and vLLM open GPTQ with zero points; GPTQModel by itself only its own; " +
                            Option::kFormat + " awq is for all");
}

// transformers 5 dequantises every tensor as the first group of config.json says.
void add_compressed_tensors_notes(ExportPlan& plan) {
  std::set<std::pair<const Scheme*, std::int64_t>> groups;
  bool has_zero_points = false;
  for (const ExportedTensor& tensor : plan.tensors) {
    if (!tensor.result.scheme) continue;
    groups.emplace(tensor.result.scheme, tensor.result.group_size);
    has_zero_points = has_zero_points || tensor.result.scheme->decode == Decode::kZeroPoint;
  }
  if (has_zero_points && groups.size() > 1)
    plan.notes.emplace_back(
        "transformers 5 opens asym_int4 only where all quantised tensors have one scheme and group size; here they "
        "differ");
}

constexpr std::array<ExportFormat, 4> kFormats{{
    {.name = "compressed-tensors",
     .title = "compressed-tensors",
     .schemes = kCompressedTensorsSchemes,
     .is_uniform = false,
     .has_float16_scales = false,
     .has_all_zero_points = true,
     .packs_heads = true,
     .row_multiple = 1,
     .column_multiple = 1,
     .smallest_block = 0,
     .layout = &kOwnLayout,
     .config = own_config,
     .add_notes = add_compressed_tensors_notes,
     .config_file = ""},
    {.name = "bitsandbytes",
     .title = "bitsandbytes",
     .schemes = kBitsandbytesSchemes,
     .is_uniform = false,
     .has_float16_scales = false,
     .has_all_zero_points = true,
     .packs_heads = true,
     .row_multiple = 1,
     .column_multiple = 1,
     .smallest_block = 32,
     .layout = &kOwnLayout,
     .config = own_config,
     .add_notes = nullptr,
     .config_file = ""},
    {.name = "gptq",
     .title = "GPTQ",
     .schemes = kGptqSchemes,
     .is_uniform = true,
     .has_float16_scales = true,
     .has_all_zero_points = false,
     .packs_heads = false,
     .row_multiple = 8,
     .column_multiple = 8,
     .smallest_block = 0,
     .layout = &kGptqLayout,
     .config = gptq_config,
     .add_notes = add_gptq_notes,
     .config_file = "quantize_config.json"},
    {.name = "awq",
     .title = "AWQ",
     .schemes = kAwqSchemes,
     .is_uniform = true,
     .has_float16_scales = true,
     .has_all_zero_points = true,
     .packs_heads = false,
     .row_multiple = 8,
     .column_multiple = 8,
     .smallest_block = 0,
     .layout = &kAwqLayout,
     .config = awq_config,
     .add_notes = nullptr,
     .config_file = ""},
}};

}  // namespace

std::span<const ExportFormat> export_format_table() { return kFormats; }

std::vector<std::string> export_formats() {
  std::vector<std::string> out;
  for (const ExportFormat& format : kFormats) out.emplace_back(format.name);
  return out;
}

const ExportFormat& export_format(std::string_view name) {
  const auto row = std::ranges::find(kFormats, name, &ExportFormat::name);
  if (row != kFormats.end()) return *row;
  std::string known;
  for (const ExportFormat& format : kFormats) known += (known.empty() ? "" : ", ") + std::string(format.name);
  throw Error(ErrorCode::kInvalidArgument, "format " + files::in_quotes(name) + " is not known; known are " + known);
}

}  // namespace halfbyte::convert
