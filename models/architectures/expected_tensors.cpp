// Every tensor that a model of this configuration needs.
#include "models/architectures/architecture.h"

namespace halfbyte::models {
namespace {

using Shape = std::vector<std::int64_t>;

class Expectation {
 public:
  explicit Expectation(const ModelConfig& model) : model_(model), names_(*model.naming) {}

  std::vector<ExpectedTensor> all() {
    const std::int64_t hidden = model_.hidden_size;
    add(std::string(names_.embedding) + ".weight", {model_.vocab_size, hidden}, Role::kEmbedding);
    for (std::int64_t layer = 0; layer < model_.num_hidden_layers; ++layer) add_layer(layer);
    if (model_.has_final_norm) norm("", names_.final_norm, hidden);
    add(std::string(names_.head) + ".weight", {model_.vocab_size, hidden}, Role::kHead);
    return std::move(out_);
  }

 private:
  void add(std::string name, Shape shape, Role role) { out_.push_back({std::move(name), std::move(shape), role}); }

  void norm(const std::string& path, std::string_view name, std::int64_t size) {
    add(path + std::string(name) + ".weight", {size}, Role::kNorm);
  }

  void linear(const std::string& path, std::string_view name, std::int64_t out, std::int64_t in, bool has_bias) {
    add(path + std::string(name) + ".weight", {out, in}, Role::kLinear);
    if (has_bias) add(path + std::string(name) + ".bias", {out}, Role::kBias);
  }

  void add_attention(const std::string& path) {
    const std::int64_t hidden = model_.hidden_size;
    const std::int64_t query = model_.query_size();
    const std::int64_t key = model_.key_value_size();
    if (model_.qkv == QkvLayout::kSeparate) {
      linear(path, names_.query, query, hidden, model_.qkv_bias);
      linear(path, names_.key, key, hidden, model_.qkv_bias);
      linear(path, names_.value, key, hidden, model_.qkv_bias);
    } else {
      linear(path, names_.fused_qkv, query + 2 * key, hidden, model_.qkv_bias);
    }
    if (model_.has_query_key_norm) {
      norm(path, names_.query_norm, model_.head_dim);
      norm(path, names_.key_norm, model_.head_dim);
    }
    linear(path, names_.attention_output, hidden, query, model_.output_bias);
  }

  void add_mlp(const std::string& path) {
    const std::int64_t hidden = model_.hidden_size;
    const std::int64_t inner = model_.intermediate_size;
    if (model_.is_gate_up_fused) {
      linear(path, names_.fused_gate_up, 2 * inner, hidden, model_.mlp_bias);
    } else {
      linear(path, names_.gate, inner, hidden, model_.mlp_bias);
      linear(path, names_.up, inner, hidden, model_.mlp_bias);
    }
    linear(path, names_.down, hidden, inner, model_.mlp_bias);
  }

  void add_experts(const std::string& path) {
    const std::int64_t hidden = model_.hidden_size;
    const std::int64_t inner = model_.moe.intermediate_size;
    const std::int64_t count = model_.moe.num_experts;
    add(path + std::string(names_.router) + ".weight", {count, hidden}, Role::kRouter);
    const std::string experts = path + std::string(names_.experts) + ".";
    if (!names_.stacked_gate_up.empty()) {
      add(experts + std::string(names_.stacked_gate_up), {count, 2 * inner, hidden}, Role::kLinear);
      add(experts + std::string(names_.stacked_down), {count, hidden, inner}, Role::kLinear);
      return;
    }
    for (std::int64_t expert = 0; expert < count; ++expert) {
      const std::string each = experts + std::to_string(expert) + ".";
      linear(each, names_.expert_gate, inner, hidden, false);
      linear(each, names_.expert_up, inner, hidden, false);
      linear(each, names_.expert_down, hidden, inner, false);
    }
  }

  void add_layer(std::int64_t layer) {
    const std::string path = names_.layer(layer);
    norm(path, names_.input_norm, model_.hidden_size);
    add_attention(path + std::string(names_.attention) + ".");
    if (model_.has_output_norms) norm(path, names_.attention_output_norm, model_.hidden_size);
    norm(path, names_.mlp_norm, model_.hidden_size);
    if (model_.has_experts(layer)) {
      add_experts(path + std::string(names_.moe) + ".");
    } else {
      add_mlp(path + std::string(names_.mlp) + ".");
    }
    if (model_.has_output_norms) norm(path, names_.mlp_output_norm, model_.hidden_size);
  }

  const ModelConfig& model_;
  const Naming& names_;
  std::vector<ExpectedTensor> out_;
};

}  // namespace

std::vector<ExpectedTensor> Architecture::expected(const ModelConfig& config) { return Expectation(config).all(); }

}  // namespace halfbyte::models
