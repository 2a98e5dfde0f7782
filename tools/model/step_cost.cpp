#include "tools/model/step_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

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

// Positions that all layers together look at, for a token after `past` others.
double attended_positions(const ModelConfig& config, double past) {
  double sum = 0;
  for (const models::LayerConfig& layer : config.layers) {
    sum += layer.window > 0 ? std::min(past + 1, static_cast<double>(layer.window)) : past + 1;
  }
  return sum;
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

double attended_values(const ModelConfig& config, double past) {
  return 2 * static_cast<double>(config.key_value_size()) * attended_positions(config, past);
}

double prefill_flop(const ModelConfig& config, std::int64_t tokens, std::int64_t past) {
  double weights = 0;
  for (const models::ModuleAt& module : models::modules_of(config)) {
    if (module.row->role != Role::kLinear && module.row->role != Role::kRouter) continue;
    weights += values_of(module) * (is_expert(module) ? used_experts(config, 1) : 1);
  }
  const double count = static_cast<double>(tokens);
  const double head = static_cast<double>(config.vocab_size * config.hidden_size);
  double positions = 0;
  for (std::int64_t token = 0; token < tokens; ++token)
    positions += attended_positions(config, static_cast<double>(past + token));
  return 2 * (weights * count + head) + 4 * static_cast<double>(config.query_size()) * positions;
}

}  // namespace halfbyte::cli
