#include "convert/gguf/metadata.h"

#include <algorithm>
#include <cmath>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/settings.h"
#include "models/architectures/family.h"

namespace halfbyte::convert {
namespace {

using files::GgufValueType;
using models::RopeType;

void add_rope(const models::ModelConfig& model, const std::string& prefix, GgufMetadata& out) {
  const models::RopeConfig& rope = model.ropes.front();
  out.real(prefix + "rope.freq_base", rope.theta);
  if (rope.type == RopeType::kDynamic)
    throw Error(ErrorCode::kUnsupported, "config.json: dynamic rope scaling, which GGUF has no word for");
  if (rope.type == RopeType::kLinear || rope.type == RopeType::kYarn) {
    out.text(prefix + "rope.scaling.type", rope.type == RopeType::kLinear ? "linear" : "yarn");
    out.real(prefix + "rope.scaling.factor", rope.factor);
  }
  if (rope.type == RopeType::kYarn || rope.type == RopeType::kLongrope)
    out.number(prefix + "rope.scaling.original_context_length", rope.original_max_position_embeddings);
  if (rope.type == RopeType::kLongrope) {
    out.text(prefix + "rope.scaling.type", "longrope");
    out.real(prefix + "rope.scaling.attn_factor", rope.attention_factor);
  }
  const double beside_usual = rope.attention_factor / models::yarn_scale(rope.factor);
  if (rope.type == RopeType::kYarn && model.latent.rank == 0 && std::abs(beside_usual - 1) > 1e-9)
    out.real(prefix + "rope.scaling.attn_factor", beside_usual);
}

void add_window(const models::ModelConfig& model, const files::GgufFamily& family, const std::string& prefix,
                GgufMetadata& out) {
  if (model.sliding_window > 0 || family.window == files::GgufWindow::kRequired)
    out.number(prefix + "attention.sliding_window", model.sliding_window);
  if (model.sliding_window == 0 || family.window != files::GgufWindow::kSomeLayers) return;
  std::vector<bool> slides;
  for (const models::LayerConfig& layer : model.layers) slides.push_back(layer.window > 0);
  out.flags(prefix + "attention.sliding_window_pattern", slides);
}

void add_setting(const models::ModelConfig& model, const files::GgufSetting& row, const std::string& prefix,
                 GgufMetadata& out) {
  const std::string key = prefix + std::string(row.gguf);
  const double value = row.value(model);
  if (row.type == GgufValueType::kFloat32 && value != 0) out.real(key, value);
  if (row.type == GgufValueType::kUint32) out.number(key, static_cast<std::int64_t>(value));
  if (row.type == GgufValueType::kBool) out.flag(key, value != 0);
}

void add_heads(const models::ModelConfig& model, const std::string& prefix, GgufMetadata& out) {
  out.number(prefix + "attention.head_count_kv", model.num_key_value_heads);
  out.number(prefix + "attention.key_length", model.head_dim);
  out.number(prefix + "attention.value_length", model.head_dim);
  out.number(prefix + "feed_forward_length", model.intermediate_size);
  out.number(prefix + "rope.dimension_count", model.ropes.front().rotary_dim);
}

void add_attention(const models::ModelConfig& model, const files::GgufFamily& family, const std::string& prefix,
                   GgufMetadata& out) {
  out.number(prefix + "attention.head_count", model.num_attention_heads);
  out.real(prefix + std::string(family.norm_eps), model.norm_eps);
  if (model.attention_softcap > 0) out.real(prefix + "attn_logit_softcapping", model.attention_softcap);
  if (model.logit_softcap > 0) out.real(prefix + "final_logit_softcapping", model.logit_softcap);
  add_window(model, family, prefix, out);
}

}  // namespace

void append_text(std::string& out, std::string_view text) {
  append_raw(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

void GgufMetadata::begin(std::string_view key, GgufValueType type) {
  append_text(bytes_, key);
  append_raw(bytes_, type);
  ++count_;
}

void GgufMetadata::begin_list(std::string_view key, GgufValueType type, std::size_t count) {
  begin(key, GgufValueType::kArray);
  append_raw(bytes_, type);
  append_raw(bytes_, static_cast<std::uint64_t>(count));
}

void GgufMetadata::text(std::string_view key, std::string_view value) {
  begin(key, GgufValueType::kString);
  append_text(bytes_, value);
}

void GgufMetadata::number(std::string_view key, std::int64_t value) {
  begin(key, GgufValueType::kUint32);
  append_raw(bytes_, static_cast<std::uint32_t>(value));
}

void GgufMetadata::real(std::string_view key, double value) {
  begin(key, GgufValueType::kFloat32);
  append_raw(bytes_, static_cast<float>(value));
}

void GgufMetadata::flag(std::string_view key, bool value) {
  begin(key, GgufValueType::kBool);
  bytes_ += value ? '\1' : '\0';
}

void GgufMetadata::texts(std::string_view key, const std::vector<std::string>& values) {
  begin_list(key, GgufValueType::kString, values.size());
  for (const std::string& value : values) append_text(bytes_, value);
}

void GgufMetadata::reals(std::string_view key, const std::vector<float>& values) {
  begin_list(key, GgufValueType::kFloat32, values.size());
  for (const float value : values) append_raw(bytes_, value);
}

void GgufMetadata::integers(std::string_view key, const std::vector<std::int32_t>& values) {
  begin_list(key, GgufValueType::kInt32, values.size());
  for (const std::int32_t value : values) append_raw(bytes_, value);
}

void GgufMetadata::flags(std::string_view key, const std::vector<bool>& values) {
  begin_list(key, GgufValueType::kBool, values.size());
  for (const bool value : values) bytes_ += value ? '\1' : '\0';
}

void add_model(const models::ModelConfig& model, const files::GgufFamily& family, GgufMetadata& out) {
  const std::string prefix = std::string(family.architecture) + ".";
  out.text("general.architecture", family.architecture);
  out.text("general.type", "model");
  out.number("general.quantization_version", 2);
  out.number(prefix + "vocab_size", model.vocab_size);
  out.number(prefix + "context_length", model.max_position_embeddings);
  out.number(prefix + "embedding_length", model.hidden_size);
  out.number(prefix + "block_count", model.num_hidden_layers);
  const GgufFamilyMetadata& own = gguf_family_metadata(family.model_type);
  if (!own.has_own_heads) add_heads(model, prefix, out);
  if (own.add) own.add(model, prefix, out);
  add_attention(model, family, prefix, out);
  add_rope(model, prefix, out);
  for (const files::GgufSetting& row : files::gguf_settings(family.model_type)) add_setting(model, row, prefix, out);
  if (model.moe.num_experts == 0) return;
  out.number(prefix + "expert_count", model.moe.num_experts);
  out.number(prefix + "expert_used_count", model.moe.experts_per_token);
  out.number(prefix + "expert_feed_forward_length", model.moe.intermediate_size);
}

}  // namespace halfbyte::convert
