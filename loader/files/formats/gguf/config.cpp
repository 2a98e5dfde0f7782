#include "loader/files/formats/gguf/config.h"

#include <algorithm>
#include <set>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/config_builder.h"
#include "loader/files/formats/gguf/rope.h"
#include "loader/files/formats/gguf/settings.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kMaxValues = 1 << 16;  // of tensors that go into the configuration
class Config {
 public:
  Config(const GgufParts& parts, const GgufFamily& family, std::vector<std::string>& notes)
      : config_(parts, family, notes), out_(config_.out), particulars_(particulars_of(family.model_type)) {}

  ordered_json make() {
    out_["architectures"] = {family_of(config_.family).class_name};
    out_["model_type"] = config_.family.model_type;
    add_sizes();
    if (!particulars_.has_own_heads) add_heads();
    out_["tie_word_embeddings"] = !config_.has_tensor("output.weight");
    add_told();
    add_particulars();
    add_experts();
    add_settings();
    add_tokens();
    add_dtype();
    return ordered_json::parse(out_.dump());  // numbers of the kinds that a file's would be
  }

 private:
  [[noreturn]] void fail(ErrorCode code, const std::string& problem) const { config_.file.fail(code, problem); }

  // The rows of the embedding, which may be more than the tokens.
  std::int64_t vocab_size() const {
    const GgufTensor* embedding = find_tensor(config_.parts, "token_embd.weight");
    if (!embedding || embedding->shape.size() != 2)
      fail(ErrorCode::kCorrupt, "there is no matrix \"token_embd.weight\"; take a complete file");
    return embedding->shape.front();
  }

  void add_sizes() {
    const models::ConfigKeys& keys = config_.keys;
    out_["hidden_size"] = config_.needed("embedding_length");
    config_.heads = config_.needed("attention.head_count");
    if (config_.heads < 1) {
      fail(ErrorCode::kCorrupt, "metadata " + in_quotes(config_.prefix + "attention.head_count") + " is 0");
    }
    out_[keys.num_hidden_layers] = config_.layers = gguf_layers(config_.file, config_.family);
    const auto inner = config_.each_layer("feed_forward_length");
    if (!inner && !config_.integer("expert_feed_forward_length")) config_.missing("feed_forward_length");
    if (inner && !inner->empty()) out_[keys.intermediate_size] = inner->front();
    out_["num_attention_heads"] = config_.heads;
    out_[keys.vocab_size] = vocab_size();
    out_[keys.max_position_embeddings] = config_.needed("context_length");
    const std::string eps(config_.family.norm_eps);
    if (!config_.number(eps)) config_.missing(eps);
    out_[keys.rms_norm_eps] = *config_.number(eps);
  }

  void add_heads() {
    const std::int64_t heads = config_.heads;
    const std::int64_t dim =
        config_.integer("attention.key_length").value_or(config_.needed("embedding_length") / heads);
    config_.head_dim = dim;
    out_[config_.keys.num_key_value_heads] = config_.integer("attention.head_count_kv").value_or(heads);
    out_[config_.keys.head_dim] = dim;
    if (const auto values = config_.integer("attention.value_length"); values && *values != dim)
      fail(ErrorCode::kUnsupported, "heads whose values are of another size than their keys");
    add_gguf_rope(config_.parts, config_.prefix, out_, config_.notes);
    add_rotary_part();
  }

  // Values of a head that turn, of those there are.
  void add_rotary_part() {
    const std::int64_t dim = config_.head_dim, turning = config_.integer("rope.dimension_count").value_or(dim);
    if (turning != dim || family_of(config_.family).defaults.partial_rotary_factor != 1.0)
      out_["partial_rotary_factor"] = static_cast<double>(turning) / static_cast<double>(dim);
    if (config_.file.has(config_.prefix + "rope.dimension_sections") && !particulars_.has_sections)
      fail(ErrorCode::kUnsupported, "positions of several dimensions (images); only text models are read");
  }

  void add_told() {
    for (const ToldByTensor& row : particulars_.told) out_[row.key] = config_.has_tensor(row.tensor);
    if (config_.has_tensor("blk.0.ffn_down.bias")) out_["mlp_bias"] = true;
  }

  void add_particulars() {
    out_["hidden_act"] = config_.family.has_gelu ? "gelu_pytorch_tanh" : "silu";
    if (config_.family.wide_query_layers > 0) add_query_scale();
    for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (const auto value = config_.number(cap)) out_[cap] = *value;
    }
    if (particulars_.add) particulars_.add(config_);
    if (particulars_.has_window) add_window();
  }

  // Not on record. Source: llama.cpp, src/models/gemma2.cpp and gemma3.cpp.
  void add_query_scale() {
    const bool is_wide = config_.layers == config_.family.wide_query_layers;
    out_["query_pre_attn_scalar"] = is_wide ? config_.needed("embedding_length") / config_.heads : config_.head_dim;
  }

  void add_window() {
    const auto [layers, usual] = particulars_.usual_window;
    const std::int64_t window =
        config_.integer("attention.sliding_window").value_or(config_.layers == layers ? usual : 0);
    if (window > 0) out_["sliding_window"] = window;
    if (config_.family.window != GgufWindow::kSomeLayers || config_.layers > models::kMaxLayers) return;
    if (window == 0) out_["sliding_window"] = nullptr;
    ordered_json types = ordered_json::array();
    for (const bool slides : sliding_layers(config_)) types.push_back(slides && window > 0 ? kSlides : kSeesAll);
    out_["layer_types"] = std::move(types);
  }

  void add_experts() {
    const std::int64_t count = config_.integer("expert_count").value_or(0);
    if (count == 0) return;
    out_[particulars_.expert_count] = count;
    out_["num_experts_per_tok"] = config_.needed("expert_used_count");
    if (!particulars_.has_expert_sizes) return;
    out_["moe_intermediate_size"] = config_.needed("expert_feed_forward_length");
    out_["norm_topk_prob"] = true;
  }

  void add_settings() {
    for (const GgufSetting& row : gguf_settings(config_.family.model_type)) {
      if (!row.is_only_written) add_setting(row);
    }
  }

  void add_setting(const GgufSetting& row) {
    const std::string key = config_.prefix + std::string(row.gguf);
    if (row.is_required && !config_.file.has(key)) config_.missing(std::string(row.gguf));
    const std::optional<double> found = value_of(row, key);
    if (!row.config) {
      const double wanted = row.value(models::ModelConfig());
      if (found.value_or(wanted) == wanted) return;
      fail(ErrorCode::kUnsupported, "metadata " + in_quotes(key) + " is not " +
                                        std::to_string(static_cast<std::int64_t>(wanted)) + ", as the family has");
    }
    const std::optional<double> value = found ? found : row.absent;
    if (!value || (row.is_of_scaling && !out_.contains("rope_scaling"))) return;
    ordered_json& field = row.is_of_scaling ? out_["rope_scaling"][row.config] : out_[row.config];
    if (row.type == GgufValueType::kFloat32) field = *value;
    if (row.type == GgufValueType::kUint32) field = static_cast<std::int64_t>(*value);
    if (row.type == GgufValueType::kBool) field = *value != 0;
  }

  std::optional<double> value_of(const GgufSetting& row, const std::string& key) const {
    if (!config_.file.has(key)) return std::nullopt;
    if (row.type == GgufValueType::kBool) return *config_.file.boolean(key) ? 1.0 : 0.0;
    if (row.type == GgufValueType::kUint32) return static_cast<double>(*config_.file.integer(key));
    const double value = *config_.file.number(key);
    return value == 0 ? std::nullopt : std::optional(value);
  }

  void add_tokens() {
    if (const auto id = config_.file.integer("tokenizer.ggml.bos_token_id"); id && *id >= 0) out_["bos_token_id"] = *id;
    const std::vector<std::int64_t> ends = gguf_end_tokens(config_.file);
    if (ends.size() == 1) out_["eos_token_id"] = ends.front();
    if (ends.size() > 1) out_["eos_token_id"] = ends;
  }

  // Of the matrices, when all are stored in one that may have been theirs.
  void add_dtype() {
    std::set<const GgmlType*> types;
    for (const GgufFile& part : config_.parts) {
      for (const GgufTensor& tensor : part.tensors()) {
        if (tensor.shape.size() >= 2) types.insert(tensor.type);
      }
    }
    if (types.size() == 1 && (*types.begin())->dtype) out_["torch_dtype"] = name(*(*types.begin())->dtype);
  }

  ConfigBuilder config_;
  ordered_json& out_;
  const Particulars& particulars_;
};

}  // namespace

ConfigBuilder::ConfigBuilder(const GgufParts& all, const GgufFamily& of, std::vector<std::string>& for_notes)
    : parts(all),
      file(all.front()),
      family(of),
      keys(family_of(of).keys),
      prefix(std::string(of.architecture) + "."),
      notes(for_notes) {}

std::optional<std::int64_t> ConfigBuilder::integer(const std::string& key) const {
  const std::string full = prefix + key;
  if (!file.is_list(full)) return file.integer(full);
  const std::vector<std::int64_t> items = *file.integers(full);  // one a layer
  if (!items.empty() && std::ranges::count(items, items.front()) == std::ssize(items)) return items.front();
  file.fail(ErrorCode::kUnsupported, "metadata " + in_quotes(full) + " differs from layer to layer");
}

std::int64_t ConfigBuilder::needed(const std::string& key) const {
  if (const auto value = integer(key)) return *value;
  missing(key);
}

std::optional<std::vector<std::int64_t>> ConfigBuilder::each_layer(const std::string& key) const {
  const std::string full = prefix + key;
  const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(layers, 0, models::kMaxLayers));
  if (!file.is_list(full)) {
    const auto value = file.integer(full);
    return value ? std::optional(std::vector<std::int64_t>(count, *value)) : std::nullopt;
  }
  std::vector<std::int64_t> values = *file.integers(full);
  if (values.size() < count) {
    file.fail(ErrorCode::kCorrupt, "the list " + in_quotes(full) + " has " + std::to_string(values.size()) +
                                       " items for " + std::to_string(layers) + " layers");
  }
  values.resize(count);
  return values;
}

void ConfigBuilder::missing(const std::string& key) const {
  file.fail(ErrorCode::kCorrupt, "metadata " + in_quotes(prefix + key) + " is missing; take a complete file");
}

// A list has one entry a layer; a number says that every so many layers one does not slide.
std::vector<bool> sliding_layers(const ConfigBuilder& config) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  std::vector<bool> out;
  if (config.file.is_list(config.prefix + kPattern)) {
    const std::vector<std::int64_t> slides = *config.each_layer(kPattern);
    for (const std::int64_t each : slides) out.push_back(each != 0);
    return out;
  }
  const std::int64_t every = config.file.integer(config.prefix + kPattern).value_or(config.family.full_every);
  for (std::int64_t layer = 1; layer <= config.layers; ++layer) out.push_back(every == 0 || layer % every != 0);
  return out;
}

std::vector<std::int64_t> gguf_end_tokens(const GgufFile& file) {
  std::vector<std::int64_t> out;
  for (const char* key : {"eos", "eot", "eom"}) {
    const auto id = file.integer(std::string("tokenizer.ggml.") + key + "_token_id");
    if (id && *id >= 0 && std::ranges::find(out, *id) == out.end()) out.push_back(*id);
  }
  return out;
}

std::int64_t gguf_layers(const GgufFile& file, const GgufFamily& family) {
  const std::string prefix = std::string(family.architecture) + ".", count = prefix + "block_count";
  if (!file.has(count))
    file.fail(ErrorCode::kCorrupt, "metadata " + in_quotes(count) + " is missing; take a complete file");
  const std::int64_t all = *file.integer(count), ahead = file.integer(prefix + kLayersAhead).value_or(0);
  if (ahead >= 0 && ahead <= all) return all - ahead;
  file.fail(ErrorCode::kCorrupt, "metadata " + in_quotes(prefix + kLayersAhead) + " is more than there are layers");
}

const GgufTensor* find_tensor(const GgufParts& parts, std::string_view name) {
  for (const GgufFile& part : parts) {
    if (const GgufTensor* found = part.find_tensor(name)) return found;
  }
  return nullptr;
}

std::vector<float> gguf_values(const GgufParts& parts, std::string_view name) {
  for (const GgufFile& part : parts) {
    const GgufTensor* tensor = part.find_tensor(name);
    if (!tensor) continue;
    if (tensor->type->dtype != Dtype::kFloat32 || tensor->shape.size() != 1 || tensor->size_bytes / 4 > kMaxValues)
      part.fail(ErrorCode::kCorrupt, "tensor " + in_quotes(name) + " is no short list of float32");
    std::vector<float> out(tensor->size_bytes / 4);
    part.file().read(tensor->offset, std::as_writable_bytes(std::span(out)));
    return out;
  }
  parts.front().fail(ErrorCode::kCorrupt, "there is no tensor " + in_quotes(name) + "; take a complete file");
}

ordered_json gguf_config(const GgufParts& parts, const GgufFamily& family, std::vector<std::string>& notes) {
  return Config(parts, family, notes).make();
}

}  // namespace halfbyte::files
