// What halfbyte knows of a model family without LibTorch: its configuration, its tensors' names, roles and shapes, the
// buffers it derives. For the converter (which tensors are Linear weights) and the loader (which tensors must be
// there).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/dtype.h>

namespace halfbyte::models {

// What a tensor is for. Only kLinear is quantised unless the user asks for more.
enum class Role : std::uint8_t { kLinear, kEmbedding, kHead, kNorm, kBias, kBuffer, kUnknown };

std::string_view name(Role role) noexcept;  // "linear", "embedding", ...

enum class RopeType : std::uint8_t { kDefault, kLinear, kLlama3 };

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  std::int64_t rotary_dim = 0;  // values of a head that turn; head_dim for Llama
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 0;
};

// config.json, checked and with its defaults filled in.
struct ModelConfig {
  std::string model_type;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  RopeConfig rope;
  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;
};

struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Role role;
};

// A buffer that the model computes instead of storing, as the original implementation holds it.
struct DerivedBuffer {
  std::string name;
  Dtype original_dtype;
  std::string how;        // "rope"
  nlohmann::json inputs;  // what it is computed from
};

// One digit-run wildcard: "{}" in a pattern matches one or more digits; everything else matches itself.
bool matches(std::string_view pattern, std::string_view name) noexcept;

struct TensorPattern {
  std::string_view pattern;
  Role role;
};

// One row of the table of families.
struct Architecture {
  std::string_view model_type;  // config.json's "model_type"
  std::string_view class_name;  // config.json's "architectures"[0]
  std::span<const TensorPattern> tensors;
  ModelConfig (*parse)(const nlohmann::json& config);
  std::vector<ExpectedTensor> (*expected)(const ModelConfig& config);
  std::vector<DerivedBuffer> (*derived)(const ModelConfig& config);
  // [alias, owner] pairs of tensors that are one storage under this configuration.
  std::vector<std::pair<std::string, std::string>> (*ties)(const ModelConfig& config);
};

std::span<const Architecture> architectures() noexcept;
// By model_type, else by architectures[0]; null when the family is not known.
const Architecture* find_architecture(const nlohmann::json& config);

// The role of a tensor by the family's patterns; for an unknown family (null) by general naming: a rank-2 "*.weight"
// that is not an embedding, norm or head is a Linear.
Role role_of(const Architecture* architecture, std::string_view tensor_name, std::span<const std::int64_t> shape);

// "float16", ... of config.json's "dtype" or "torch_dtype", or nothing.
std::optional<Dtype> declared_dtype(const nlohmann::json& config);

}  // namespace halfbyte::models
