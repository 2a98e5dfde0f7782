#include "loader/files/methods/gptq_config.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "loader/files/json_text.h"
#include "loader/files/methods/gptq_layout.h"
#include "loader/files/methods/quantization.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr std::int64_t kDenseBits = 16;  // so many or more: a module that is not quantised
constexpr std::int64_t kMaxGroupSize = std::int64_t{1} << 40;

struct PackingName {
  std::string_view name;
  GptqPacking packing;
};

constexpr auto kGptqFormats =
    std::to_array<PackingName>({{"gptq", GptqPacking::kGptqV1}, {"gptq_v2", GptqPacking::kGptqV2}});

// Source: intel/auto-round, inference/convert_model.py, formats.py.
constexpr auto kAutoRoundFormats = std::to_array<PackingName>({
    {"auto", GptqPacking::kGptqV1},
    {"auto_gptq", GptqPacking::kGptqV1},
    {"auto_round:gptq", GptqPacking::kGptqV1},
    {"auto_round:auto_gptq", GptqPacking::kGptqV1},
    {"auto_round", GptqPacking::kGptqV2},
    {"auto_round:auto_round", GptqPacking::kGptqV2},
    {"auto_round:gptqmodel", GptqPacking::kGptqV2},
    {"auto_awq", GptqPacking::kAwq},
    {"auto_round:awq", GptqPacking::kAwq},
    {"auto_round:auto_awq", GptqPacking::kAwq},
});

// Settings that change the numbers in ways the tensors do not say.
constexpr auto kMustBeAbsent = std::to_array<const char*>(
    {"is_marlin_format", "adapter", "rotation", "rotation_config", "transform_config", "kv_cache_scheme"});

void refuse_set(const JsonField& config) {
  for (const char* key : kMustBeAbsent) {
    const auto field = config.find(key);
    if (field && !field->json().empty() && field->json() != nlohmann::json(false))
      fail_unsupported(field->path(), "this setting");
  }
}

void want_text(const JsonField& config, const char* key, std::string_view wanted) {
  const auto field = config.find(key);
  if (field && field->string() != wanted) fail_unsupported(field->path(), in_quotes(field->string()));
}

void refuse_quantized_activations(const JsonField& config) {
  const auto bits = config.find("act_bits");
  if (bits && bits->integer(1, 64) < kDenseBits) fail_unsupported(bits->path(), "quantisation of activations");
}

template <std::size_t kSize>
GptqPacking packing_of(const JsonField& field, const std::array<PackingName, kSize>& names) {
  const auto row = std::ranges::find(names, field.string(), &PackingName::name);
  if (row == names.end()) fail_unsupported(field.path(), in_quotes(field.string()));
  return row->packing;
}

std::optional<JsonField> find_either(const JsonField& config, const char* key, const char* other) {
  const auto field = config.find(key);
  return field ? field : config.find(other);
}

// What `config` says, and `usual` says of the rest; nothing: not quantised.
std::optional<LinearFormat> read_format(const JsonField& config, const LinearFormat& usual) {
  LinearFormat out = usual;
  want_text(config, "data_type", "int");
  refuse_quantized_activations(config);
  if (const auto bits = find_either(config, "bits", "w_bit")) {
    const std::int64_t count = bits->integer(1, 64);
    if (count >= kDenseBits) return std::nullopt;
    if (count != 4 && count != 8) fail_unsupported(bits->path(), std::to_string(count) + " bits");
    out.bits = static_cast<int>(count);
  }
  if (const auto size = find_either(config, "group_size", "q_group_size")) {
    const std::int64_t count = size->integer(-1, kMaxGroupSize);
    if (count == 0) size->fail_wanting("-1 (one group a row), or how many weights share a scale");
    out.group_size = std::max<std::int64_t>(count, 0);
  }
  if (const auto zero_point = config.find("zero_point")) out.is_symmetric = !zero_point->boolean();
  if (const auto sym = config.find("sym")) out.is_symmetric = sym->boolean();
  return out;
}

// The usual format of the checkpoint, first in the list.
void add_usual(const JsonField& config, GptqConfig& out) {
  if (!find_either(config, "bits", "w_bit")) static_cast<void>(config.at("bits"));
  if (!find_either(config, "group_size", "q_group_size")) static_cast<void>(config.at("group_size"));
  const auto usual = read_format(config, {4, 0, out.packing != GptqPacking::kAwq});
  if (usual) out.formats.push_back(*usual);
}

void add_format(const JsonField& config, const std::string& module, GptqConfig& out) {
  const LinearFormat usual = out.formats.empty() ? LinearFormat{4, 0, true} : out.formats.front();
  const auto format = read_format(config, usual);
  if (!format) return;
  if (!module.empty()) out.by_module.emplace(module, *format);
  out.formats.push_back(*format);
}

// Rules of GPTQModel's by patterns of names: "-:" keeps a module as it was, others change some settings.
void add_dynamic(const JsonField& config, GptqConfig& out) {
  const auto rules = config.find("dynamic");
  if (!rules || rules->json() == nlohmann::json(false)) return;
  for (const auto& [pattern, rule] : rules->members()) {
    if (!pattern.starts_with("-:") && rule.json().is_object()) add_format(rule, {}, out);
  }
}

// AutoRound's rules by names of modules, or by patterns.
void add_extra(const JsonField& config, GptqConfig& out) {
  const auto rules = config.find("extra_config");
  if (!rules) return;
  for (const auto& [module, rule] : rules->members()) add_format(rule, module, out);
}

GptqConfig begin_config(const JsonField& config, GptqPacking packing) {
  refuse_set(config);
  want_text(config, "pack_dtype", "int32");
  GptqConfig out{config.path(), packing, {}, {}};
  add_usual(config, out);
  add_dynamic(config, out);
  add_extra(config, out);
  return out;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c; });
  return text;
}

struct SideFile {
  std::string_view name;
  std::string_view method;  // unless the file says another
};

constexpr auto kSideFiles = std::to_array<SideFile>(
    {{"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}, {"quantization_config.json", "gptq"}});

}  // namespace

GptqConfig read_gptq_config(const JsonField& config) {
  const auto format = find_either(config, "checkpoint_format", "format");
  return begin_config(config, format ? packing_of(*format, kGptqFormats) : GptqPacking::kGptqV1);
}

GptqConfig read_awq_config(const JsonField& config) {
  for (const char* key : {"version", "checkpoint_format", "format"}) {
    const auto version = config.find(key);
    if (version && lower(version->string()) != "gemm")
      fail_unsupported(version->path(), "AWQ's " + in_quotes(version->string()));
  }
  GptqConfig out = begin_config(config, GptqPacking::kAwq);
  const auto other = std::ranges::find_if(out.formats, [](const LinearFormat& format) { return format.bits != 4; });
  if (other != out.formats.end()) fail_unsupported(out.where, "AWQ in " + std::to_string(other->bits) + " bits");
  return out;
}

GptqConfig read_auto_round_config(const JsonField& config) {
  const auto format = find_either(config, "packing_format", "backend");
  return begin_config(config, format ? packing_of(*format, kAutoRoundFormats) : GptqPacking::kGptqV1);
}

std::optional<Declaration> find_gptq_side_file(const Checkpoint& checkpoint) {
  const auto is_packed = [](const StoredTensor& tensor) { return tensor.name.ends_with(kGptqCodes); };
  if (std::ranges::none_of(checkpoint.tensors, is_packed)) return std::nullopt;
  for (const SideFile& row : kSideFiles) {
    if (std::ranges::find(checkpoint.side_files, fs::path(row.name)) == checkpoint.side_files.end()) continue;
    Declaration out{.method = std::string(row.method),
                    .json = models::HeldJson(read_beside(checkpoint, row.name)),
                    .where = printable_path(checkpoint.directory / row.name)};
    for (const char* key : {"method", "quant_method"}) {
      if (const auto method = JsonField(*out.json, out.where).find(key)) out.method = method->string();
    }
    return out;
  }
  return std::nullopt;
}

}  // namespace halfbyte::files
