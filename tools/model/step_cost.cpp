#include "tools/model/step_cost.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "models/architectures/architecture.h"

namespace halfbyte::cli {
namespace {

using models::ModelConfig;
using models::Role;

bool is_expert(const ModelConfig& config, const std::string& name, Role role) {
  if (config.moe.num_experts == 0 || role == Role::kRouter) return false;
  const models::Naming& names = *config.naming;
  const auto has = [&](std::string_view part) { return !part.empty() && name.find(part) != std::string::npos; };
  return has(std::string(names.experts) + ".") || has(names.stacked_gate_up) || has(names.stacked_down);
}

// Of a layer's experts, those that at least one of `tokens` tokens chooses, if each chooses by chance.
double used_experts(const ModelConfig& config, double tokens) {
  const double chosen = static_cast<double>(config.moe.experts_per_token) / static_cast<double>(config.moe.num_experts);
  return 1 - std::pow(1 - chosen, tokens);
}

Role role_of(const std::vector<models::ExpectedTensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &models::ExpectedTensor::name);
  return found == tensors.end() ? Role::kUnknown : found->role;
}

double values_of(const models::ExpectedTensor& tensor) {
  double values = 1;
  for (const std::int64_t size : tensor.shape) values *= static_cast<double>(size);
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
  const std::vector<models::ExpectedTensor> tensors = models::Architecture::expected(config);
  const double tokens = static_cast<double>(batch);
  double read = 0;
  double embedding = 0;
  bool is_head_tied = true;
  for (const LoadedTensor& line : report.tensors) {
    const double bytes = static_cast<double>(line.bytes);
    const Role role = role_of(tensors, line.name);
    if (role == Role::kEmbedding) {
      embedding = bytes;
      continue;
    }
    if (role == Role::kHead && line.bytes > 0) is_head_tied = false;
    read += is_expert(config, line.name, role) ? bytes * used_experts(config, tokens) : bytes;
  }
  return read + (is_head_tied ? embedding : embedding * tokens / static_cast<double>(config.vocab_size));
}

double attended_values(const ModelConfig& config, double past) {
  return 2 * static_cast<double>(config.key_value_size()) * attended_positions(config, past);
}

double prefill_flop(const ModelConfig& config, std::int64_t tokens, std::int64_t past) {
  double weights = 0;
  for (const models::ExpectedTensor& tensor : models::Architecture::expected(config)) {
    if (tensor.role != Role::kLinear && tensor.role != Role::kRouter) continue;
    const double share = is_expert(config, tensor.name, tensor.role) ? used_experts(config, 1) : 1;
    weights += values_of(tensor) * share;
  }
  const double count = static_cast<double>(tokens);
  const double head = static_cast<double>(config.vocab_size * config.hidden_size);
  double positions = 0;
  for (std::int64_t token = 0; token < tokens; ++token)
    positions += attended_positions(config, static_cast<double>(past + token));
  return 2 * (weights * count + head) + 4 * static_cast<double>(config.query_size()) * positions;
}

}  // namespace halfbyte::cli
