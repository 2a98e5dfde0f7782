#include "loader/files/formats/gguf/config.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/rope.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kMaxValues = 1 << 16;  // of tensors that go into the configuration
constexpr std::int64_t kGemma2LargeLayers = 46;

// A field that says whether the first layer has a tensor.
struct ToldByTensor {
  const char* key;
  const char* tensor;  // below "blk.0."
};
constexpr auto kUsualBiases = std::to_array<ToldByTensor>({{"attention_bias", "attn_q.bias"}});
constexpr auto kChatglmBiases =
    std::to_array<ToldByTensor>({{"add_qkv_bias", "attn_qkv.bias"}, {"add_bias_linear", "attn_output.bias"}});

class Config;

// What config.json of some families says otherwise than that of most.
struct Particulars {
  std::string_view model_type;
  std::span<const ToldByTensor> biases = kUsualBiases;
  void (Config::*add)() = nullptr;  // fields that no other family has
  bool has_window = false;
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
    add_biases();
    add_particulars();
    add_experts();
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
    file_.fail(ErrorCode::kCorrupt, "metadata " + in_quotes(prefix_ + key) + " is missing; take a complete file");
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
    out_[keys_.num_hidden_layers] = needed("block_count");
    out_["num_attention_heads"] = heads_;
    out_[keys_.num_key_value_heads] = integer("attention.head_count_kv").value_or(heads_);
    out_[keys_.head_dim] = head_dim_;
    out_[keys_.vocab_size] = vocab_size();
    out_[keys_.max_position_embeddings] = needed("context_length");
    const auto eps = file_.number(prefix_ + "attention.layer_norm_rms_epsilon");
    if (!eps) {
      file_.fail(ErrorCode::kCorrupt, "metadata " + in_quotes(prefix_ + "attention.layer_norm_rms_epsilon") +
                                          " is missing; take a complete file");
    }
    out_[keys_.rms_norm_eps] = *eps;
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

  bool has_in_layer(const char* name) const { return find_tensor(parts_, std::string("blk.0.") + name) != nullptr; }

  void add_biases() {
    for (const ToldByTensor& bias : particulars_.biases) out_[bias.key] = has_in_layer(bias.tensor);
    if (has_in_layer("ffn_down.bias")) out_["mlp_bias"] = true;
  }

  void add_particulars() {
    out_["hidden_act"] = family_.adds_one_to_norms ? "gelu_pytorch_tanh" : "silu";
    if (particulars_.add) (this->*particulars_.add)();
    if (!particulars_.has_window) return;
    const std::int64_t window = integer("attention.sliding_window").value_or(0);
    if (window > 0) out_["sliding_window"] = window;
  }

  void add_chatglm() {
    out_["multi_query_attention"] = true;
    out_["rmsnorm"] = true;
    out_["post_layer_norm"] = true;
    out_["apply_residual_connection_post_layernorm"] = false;
  }

  // The scale of queries is not on record. Source: llama.cpp, src/models/gemma2.cpp.
  void add_gemma2() {
    const bool is_large = integer("block_count") == kGemma2LargeLayers;
    out_["query_pre_attn_scalar"] = is_large ? needed("embedding_length") / heads_ : head_dim_;
    for (const auto& [gguf, key] : {std::pair("attn_logit_softcapping", "attn_logit_softcapping"),
                                    std::pair("final_logit_softcapping", "final_logit_softcapping")}) {
      if (const auto value = file_.number(prefix_ + gguf)) out_[key] = *value;
    }
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
  std::int64_t heads_ = 0, head_dim_ = 0;
};

const Particulars& Config::particulars_of(std::string_view model_type) {
  static constexpr auto kRows = std::to_array<Particulars>({
      {.model_type = "chatglm", .biases = kChatglmBiases, .add = &Config::add_chatglm},
      {.model_type = "gemma2", .add = &Config::add_gemma2, .has_window = true},
      {.model_type = "mixtral", .expert_count = "num_local_experts", .has_expert_sizes = false},
      {.model_type = "phi3", .has_window = true},
      {.model_type = "qwen2", .biases = {}},
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
