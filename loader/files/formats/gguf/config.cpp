#include "loader/files/formats/gguf/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/rope.h"
#include "loader/files/formats/gguf/settings.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kMaxValues = 1 << 16;  // of tensors that go into the configuration
// What a file means that has no window: one in models of this many layers, in others none.
struct UsualWindow {
  std::int64_t layers = 0, window = 0;
};

// A field that says whether the model has a tensor.
struct ToldByTensor {
  const char* key;
  const char* tensor;
};
constexpr auto kUsualBiases = std::to_array<ToldByTensor>({{"attention_bias", "blk.0.attn_q.bias"}});
constexpr auto kChatglmBiases = std::to_array<ToldByTensor>(
    {{"add_qkv_bias", "blk.0.attn_qkv.bias"}, {"add_bias_linear", "blk.0.attn_output.bias"}});
constexpr auto kSeedBiases = std::to_array<ToldByTensor>(
    {{"attention_bias", "blk.0.attn_q.bias"}, {"attention_out_bias", "blk.0.attn_output.bias"}});
constexpr auto kErnieBiases = std::to_array<ToldByTensor>({{"use_bias", "blk.0.attn_q.bias"}});
constexpr auto kPhimoeBiases =
    std::to_array<ToldByTensor>({{"attention_bias", "blk.0.attn_q.bias"}, {"lm_head_bias", "output.bias"}});
constexpr auto kGlm4MoeParts =
    std::to_array<ToldByTensor>({{"attention_bias", "blk.0.attn_q.bias"}, {"use_qk_norm", "blk.0.attn_q_norm.weight"}});

constexpr const char* kSlides = "sliding_attention";
constexpr const char* kSeesAll = "full_attention";

class Config;

// What config.json of some families says otherwise than that of most.
struct Particulars {
  std::string_view model_type;
  std::span<const ToldByTensor> told = kUsualBiases;
  void (Config::*add)() = nullptr;  // fields that no other family has
  bool has_window = false;
  UsualWindow usual_window = {};
  const char* expert_count = "num_experts";
  bool has_expert_sizes = true;  // else experts are as wide as a dense layer
};

class Config {
 public:
  Config(const GgufParts& parts, const GgufFamily& family, std::vector<std::string>& notes)
      : parts_(parts),
        file_(parts.front()),
        family_(family),
        keys_(family_of(family).keys),
        particulars_(particulars_of(family.model_type)),
        prefix_(std::string(family.architecture) + "."),
        notes_(notes) {}

  ordered_json make() {
    out_["architectures"] = {family_of(family_).class_name};
    out_["model_type"] = family_.model_type;
    add_sizes();
    add_gguf_rope(parts_, prefix_, out_, notes_);
    add_rotary_part();
    out_["tie_word_embeddings"] = find_tensor(parts_, "output.weight") == nullptr;
    add_told();
    add_particulars();
    add_experts();
    add_settings();
    add_tokens();
    add_dtype();
    return ordered_json::parse(out_.dump());  // numbers of the kinds that a file's would be
  }

 private:
  static const Particulars& particulars_of(std::string_view model_type);

  std::optional<std::int64_t> integer(const std::string& key) const {
    const std::string full = prefix_ + key;
    if (!file_.is_list(full)) return file_.integer(full);
    const std::vector<std::int64_t> layers = *file_.integers(full);  // one a layer
    if (!layers.empty() && std::ranges::count(layers, layers.front()) == std::ssize(layers)) return layers.front();
    file_.fail(ErrorCode::kUnsupported, "metadata " + in_quotes(full) + " differs from layer to layer");
  }

  std::int64_t needed(const std::string& key) const {
    if (const auto value = integer(key)) return *value;
    missing(prefix_ + key);
  }

  [[noreturn]] void missing(const std::string& key) const {
    file_.fail(ErrorCode::kCorrupt, "metadata " + in_quotes(key) + " is missing; take a complete file");
  }

  // The rows of the embedding, which may be more than the tokens.
  std::int64_t vocab_size() const {
    const GgufTensor* embedding = find_tensor(parts_, "token_embd.weight");
    if (!embedding || embedding->shape.size() != 2)
      file_.fail(ErrorCode::kCorrupt, "there is no matrix \"token_embd.weight\"; take a complete file");
    return embedding->shape.front();
  }

  void add_sizes() {
    const std::int64_t hidden = needed("embedding_length");
    heads_ = needed("attention.head_count");
    if (heads_ < 1)
      file_.fail(ErrorCode::kCorrupt, "metadata " + in_quotes(prefix_ + "attention.head_count") + " is 0");
    head_dim_ = integer("attention.key_length").value_or(hidden / heads_);
    out_["hidden_size"] = hidden;
    out_[keys_.intermediate_size] = needed("feed_forward_length");
    out_[keys_.num_hidden_layers] = layers_ = gguf_layers(file_, family_);
    out_["num_attention_heads"] = heads_;
    out_[keys_.num_key_value_heads] = integer("attention.head_count_kv").value_or(heads_);
    out_[keys_.head_dim] = head_dim_;
    out_[keys_.vocab_size] = vocab_size();
    out_[keys_.max_position_embeddings] = needed("context_length");
    const std::string eps = prefix_ + std::string(family_.norm_eps);
    if (!file_.has(eps)) missing(eps);
    out_[keys_.rms_norm_eps] = *file_.number(eps);
    if (const auto values = integer("attention.value_length"); values && *values != head_dim_)
      file_.fail(ErrorCode::kUnsupported, "heads whose values are of another size than their keys");
  }

  // Values of a head that turn, of those there are.
  void add_rotary_part() {
    const std::int64_t turning = integer("rope.dimension_count").value_or(head_dim_);
    if (turning != head_dim_ || family_of(family_).defaults.partial_rotary_factor != 1.0)
      out_["partial_rotary_factor"] = static_cast<double>(turning) / static_cast<double>(head_dim_);
    if (file_.has(prefix_ + "rope.dimension_sections"))
      file_.fail(ErrorCode::kUnsupported, "positions of several dimensions (images); only text models are read");
  }

  void add_told() {
    for (const ToldByTensor& row : particulars_.told) out_[row.key] = find_tensor(parts_, row.tensor) != nullptr;
    if (find_tensor(parts_, "blk.0.ffn_down.bias")) out_["mlp_bias"] = true;
  }

  void add_particulars() {
    out_["hidden_act"] = family_.adds_one_to_norms ? "gelu_pytorch_tanh" : "silu";
    if (family_.wide_query_layers > 0) add_query_scale();
    for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (const auto value = file_.number(prefix_ + cap)) out_[cap] = *value;
    }
    if (particulars_.add) (this->*particulars_.add)();
    if (particulars_.has_window) add_window();
  }

  // Not on record. Source: llama.cpp, src/models/gemma2.cpp and gemma3.cpp.
  void add_query_scale() {
    const bool is_wide = layers_ == family_.wide_query_layers;
    out_["query_pre_attn_scalar"] = is_wide ? needed("embedding_length") / heads_ : head_dim_;
  }

  void add_window() {
    const auto [layers, usual] = particulars_.usual_window;
    const std::int64_t window = integer("attention.sliding_window").value_or(layers_ == layers ? usual : 0);
    if (window > 0) out_["sliding_window"] = window;
    if (family_.window != GgufWindow::kSomeLayers || layers_ > models::kMaxLayers) return;
    if (window == 0) out_["sliding_window"] = nullptr;
    ordered_json types = ordered_json::array();
    for (const bool slides : sliding_layers()) types.push_back(slides && window > 0 ? kSlides : kSeesAll);
    out_["layer_types"] = std::move(types);
  }

  // A list has one entry a layer; a number says that every so many layers one does not slide.
  std::vector<bool> sliding_layers() const {
    const std::string key = prefix_ + "attention.sliding_window_pattern";
    std::vector<bool> out;
    if (file_.is_list(key)) {
      const std::vector<std::int64_t> items = *file_.integers(key);
      for (const std::int64_t slides : items) out.push_back(slides != 0);
      if (std::ssize(out) < layers_) {
        file_.fail(ErrorCode::kCorrupt, "the list " + in_quotes(key) + " has " + std::to_string(out.size()) +
                                            " items for " + std::to_string(layers_) + " layers");
      }
      out.resize(static_cast<std::size_t>(layers_));
      return out;
    }
    const std::int64_t every = file_.integer(key).value_or(family_.full_every);
    for (std::int64_t layer = 1; layer <= layers_; ++layer) out.push_back(every == 0 || layer % every != 0);
    return out;
  }

  void add_chatglm() {
    out_["multi_query_attention"] = true;
    out_["rmsnorm"] = true;
    out_["post_layer_norm"] = true;
    out_["apply_residual_connection_post_layernorm"] = false;
  }

  // Where the file does not say, what llama.cpp takes and not what transformers does.
  void add_granite() { out_["attention_multiplier"] = 1 / std::sqrt(static_cast<double>(head_dim_)); }

  // YaRN's factor of attention, as llama.cpp's converter gives it.
  void add_ministral3() {
    const auto all = file_.number(prefix_ + "rope.scaling.yarn_log_multiplier");
    if (!all || !out_.contains("rope_scaling")) return;
    out_["rope_scaling"]["mscale"] = 1.0;
    out_["rope_scaling"]["mscale_all_dim"] = *all;
  }

  void add_experts() {
    const std::int64_t count = integer("expert_count").value_or(0);
    if (count == 0) return;
    out_[particulars_.expert_count] = count;
    out_["num_experts_per_tok"] = needed("expert_used_count");
    if (!particulars_.has_expert_sizes) return;
    out_["moe_intermediate_size"] = needed("expert_feed_forward_length");
    out_["norm_topk_prob"] = true;
  }

  void add_settings() {
    for (const GgufSetting& row : gguf_settings(family_.model_type)) add_setting(row);
  }

  void add_setting(const GgufSetting& row) {
    const std::string key = prefix_ + std::string(row.gguf);
    if (row.is_required && !file_.has(key)) missing(key);
    const std::optional<double> found = value_of(row, key);
    if (!row.config) {
      const double wanted = row.value(models::ModelConfig());
      if (found.value_or(wanted) == wanted) return;
      file_.fail(ErrorCode::kUnsupported, "metadata " + in_quotes(key) + " is not " +
                                              std::to_string(static_cast<std::int64_t>(wanted)) +
                                              ", as the family has");
    }
    const std::optional<double> value = found ? found : row.absent;
    if (!value || (row.is_of_scaling && !out_.contains("rope_scaling"))) return;
    ordered_json& field = row.is_of_scaling ? out_["rope_scaling"][row.config] : out_[row.config];
    if (row.type == GgufValueType::kFloat32) field = *value;
    if (row.type == GgufValueType::kUint32) field = static_cast<std::int64_t>(*value);
    if (row.type == GgufValueType::kBool) field = *value != 0;
  }

  std::optional<double> value_of(const GgufSetting& row, const std::string& key) const {
    if (!file_.has(key)) return std::nullopt;
    if (row.type == GgufValueType::kBool) return *file_.boolean(key) ? 1.0 : 0.0;
    if (row.type == GgufValueType::kUint32) return static_cast<double>(*file_.integer(key));
    const double value = *file_.number(key);
    return value == 0 ? std::nullopt : std::optional(value);
  }

  void add_tokens() {
    if (const auto id = file_.integer("tokenizer.ggml.bos_token_id"); id && *id >= 0) out_["bos_token_id"] = *id;
    const std::vector<std::int64_t> ends = gguf_end_tokens(file_);
    if (ends.size() == 1) out_["eos_token_id"] = ends.front();
    if (ends.size() > 1) out_["eos_token_id"] = ends;
  }

  // Of the matrices, when all are stored in one that may have been theirs.
  void add_dtype() {
    std::set<const GgmlType*> types;
    for (const GgufFile& part : parts_) {
      for (const GgufTensor& tensor : part.tensors()) {
        if (tensor.shape.size() >= 2) types.insert(tensor.type);
      }
    }
    if (types.size() == 1 && (*types.begin())->dtype) out_["torch_dtype"] = name(*(*types.begin())->dtype);
  }

  const GgufParts& parts_;
  const GgufFile& file_;
  const GgufFamily& family_;
  const models::ConfigKeys& keys_;
  const Particulars& particulars_;
  std::string prefix_;
  std::vector<std::string>& notes_;
  ordered_json out_ = ordered_json::object();
  std::int64_t heads_ = 0, head_dim_ = 0, layers_ = 0;
};

const Particulars& Config::particulars_of(std::string_view model_type) {
  static constexpr auto kRows = std::to_array<Particulars>({
      {.model_type = "chatglm", .told = kChatglmBiases, .add = &Config::add_chatglm},
      {.model_type = "cohere2", .has_window = true},
      {.model_type = "ernie4_5", .told = kErnieBiases},
      {.model_type = "exaone4", .told = {}, .has_window = true, .usual_window = {64, 4096}},  // as llama.cpp has it
      {.model_type = "gemma2", .has_window = true},
      {.model_type = "gemma3_text", .has_window = true},
      {.model_type = "glm4_moe", .told = kGlm4MoeParts, .expert_count = "n_routed_experts"},
      {.model_type = "granite", .add = &Config::add_granite},
      {.model_type = "ministral3", .add = &Config::add_ministral3},
      {.model_type = "minimax_m2", .told = {}, .expert_count = "num_local_experts", .has_expert_sizes = false},
      {.model_type = "mixtral", .expert_count = "num_local_experts", .has_expert_sizes = false},
      {.model_type = "olmo3", .has_window = true},
      {.model_type = "phi3", .has_window = true},
      {.model_type = "phimoe",
       .told = kPhimoeBiases,
       .has_window = true,
       .expert_count = "num_local_experts",
       .has_expert_sizes = false},
      {.model_type = "qwen2", .told = {}},
      {.model_type = "seed_oss", .told = kSeedBiases},
  });
  static constexpr Particulars kUsual{.model_type = {}};
  const auto row = std::ranges::find(kRows, model_type, &Particulars::model_type);
  return row == kRows.end() ? kUsual : *row;
}

}  // namespace

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
