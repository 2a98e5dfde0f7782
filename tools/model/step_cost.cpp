#include "tools/model/step_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "models/architectures/state_size.h"
#include "models/architectures/tensor_table.h"

namespace halfbyte::cli {
namespace {

using models::ModelConfig;
using models::Role;

bool is_expert(const models::ModuleAt& module) {
  return module.row->place == models::Place::kExpert || module.row->place == models::Place::kExperts;
}

// Of a layer's experts, those that at least one of `tokens` tokens chooses, if each chooses by chance.
double used_experts(const ModelConfig& config, double tokens) {
  const double chosen = static_cast<double>(config.moe.experts_per_token) / static_cast<double>(config.moe.num_experts);
  return 1 - std::pow(1 - chosen, tokens);
}

std::map<std::string, models::ModuleAt> by_weight(const ModelConfig& config) {
  std::map<std::string, models::ModuleAt> out;
  for (models::ModuleAt& module : models::modules_of(config)) out.emplace(module.weight(), std::move(module));
  return out;
}

double values_of(const models::ModuleAt& module) {
  double values = 1;
  for (const std::int64_t size : module.shape) values *= static_cast<double>(size);
  return values;
}

// Positions that a layer looks at, for a token after `past` others.
double attended_positions(const models::LayerConfig& layer, double past) {
  const auto window = static_cast<double>(layer.window);
  if (layer.window <= 0) return past + 1;
  if (past < window) return past + 1;
  return layer.is_chunked ? (window + 1) / 2 : window;  // of a chunk, on average
}

// What a layer reads for a token after `past` others. Units: bytes.
double read_bytes(const ModelConfig& config, const models::LayerConfig& layer, double past, double value_bytes) {
  models::LayerConfig own = layer;
  own.keys_of = -1;  // those of another layer are read as well
  const models::StateSize size = models::state_size(config, own);
  return static_cast<double>(size.a_token) * attended_positions(layer, past) * value_bytes +
         static_cast<double>(size.fixed) * sizeof(float);
}

// Multiplications and additions of one position that a token looks at, or of what it does to a state.
double attention_flop(const ModelConfig& config, const models::LayerConfig& layer, double past) {
  constexpr double kStateFlop = 6;  // of each value: read by a key, changed, read by a query
  const auto heads = static_cast<double>(config.num_attention_heads);
  const models::LatentConfig& latent = config.latent;
  switch (layer.mixer) {
    case models::MixerKind::kAttention:
      return 4 * heads * static_cast<double>(config.head_dim_of(layer)) * attended_positions(layer, past);
    case models::MixerKind::kLatent:
      return 2 * heads * static_cast<double>(latent.query_dim() + latent.value_dim) * attended_positions(layer, past);
    default:
      return kStateFlop * static_cast<double>(models::state_size(config, layer).fixed);
  }
}

}  // namespace

double decode_weight_bytes(const ModelConfig& config, const LoadReport& report, std::int64_t batch) {
  const std::map<std::string, models::ModuleAt> modules = by_weight(config);
  const double tokens = static_cast<double>(batch);
  double read = 0;
  double embedding = 0;
  bool is_head_tied = true;
  for (const LoadedTensor& line : report.tensors) {
    const double bytes = static_cast<double>(line.bytes);
    const auto module = modules.find(line.name);
    const Role role = module == modules.end() ? Role::kUnknown : module->second.row->role;
    if (role == Role::kEmbedding) {
      embedding = bytes;
      continue;
    }
    if (role == Role::kHead && line.bytes > 0) is_head_tied = false;
    read += module != modules.end() && is_expert(module->second) ? bytes * used_experts(config, tokens) : bytes;
  }
  return read + (is_head_tied ? embedding : embedding * tokens / static_cast<double>(config.vocab_size));
}

double attended_bytes(const ModelConfig& config, double past, double value_bytes) {
  double out = 0;
  for (const models::LayerConfig& layer : config.layers) out += read_bytes(config, layer, past, value_bytes);
  return out;
}

double prefill_flop(const ModelConfig& config, std::int64_t tokens, std::int64_t past) {
  double weights = 0;
  for (const models::ModuleAt& module : models::modules_of(config)) {
    if (module.row->role != Role::kLinear && module.row->role != Role::kRouter) continue;
    weights += values_of(module) * (is_expert(module) ? used_experts(config, 1) : 1);
  }
  const double count = static_cast<double>(tokens);
  const double head = static_cast<double>(config.vocab_size * config.hidden_size);
  double attention = 0;
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (const models::LayerConfig& layer : config.layers)
      attention += attention_flop(config, layer, static_cast<double>(past + token));
  }
  return 2 * (weights * count + head) + attention;
}

}  // namespace halfbyte::cli
