#include "convert/adapters/peft_files.h"

#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "convert/merge/peft_adapter.h"
#include "loader/files/data_file_layout.h"

namespace halfbyte::convert {
namespace {

using nlohmann::ordered_json;

// The last parts of the adapters' names: peft's names for "every Linear called so".
std::set<std::string> last_parts(const Lora& lora) {
  std::set<std::string> out;
  for (const Lora::Adapter& one : lora.adapters()) out.insert(one.name.substr(one.name.rfind('.') + 1));
  return out;
}

// Ranks and alphas of modules that have others than the options say, by the modules' names.
struct Patterns {
  ordered_json ranks = ordered_json::object(), alphas = ordered_json::object();
};
Patterns patterns_of(const Lora& lora) {
  const LoraOptions& options = lora.options();
  Patterns out;
  for (const Lora::Adapter& one : lora.adapters()) {
    const std::int64_t rank = one.a.size(0);
    const auto size = static_cast<double>(rank);
    const double divisor = options.is_rank_stabilised ? std::sqrt(size) : size;
    if (rank != options.rank) out.ranks[one.name] = rank;
    if (*one.scaling != options.alpha / divisor) out.alphas[one.name] = *one.scaling * divisor;
  }
  return out;
}

ordered_json config_of(const Lora& lora, const std::string& base) {
  const LoraOptions& options = lora.options();
  ordered_json targets = ordered_json::array();
  if (options.targets.empty()) {
    for (const std::string& part : last_parts(lora)) targets.push_back(part);
  } else {
    for (const Lora::Adapter& one : lora.adapters()) targets.push_back(one.name);
  }
  Patterns patterns = patterns_of(lora);
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"r", options.rank},
          {"lora_alpha", options.alpha},
          {"lora_dropout", options.dropout},
          {"rank_pattern", std::move(patterns.ranks)},
          {"alpha_pattern", std::move(patterns.alphas)},
          {"use_rslora", options.is_rank_stabilised},
          {"use_dora", options.is_weight_decomposed},
          {"target_modules", targets},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"init_lora_weights", true}};
}

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // float32, contiguous
};

std::vector<NamedTensor> tensors_of(const Lora& lora) {
  std::vector<NamedTensor> out;
  for (const Lora::Adapter& one : lora.adapters()) {
    const auto add = [&](std::string_view ending, const at::Tensor& tensor) {
      out.push_back({std::string(kPeftPrefix) + one.name + std::string(ending), tensor.detach().cpu().contiguous()});
    };
    add(kPeftA, one.a);
    add(kPeftB, one.b);
    if (one.magnitude.defined()) add(kPeftMagnitude, one.magnitude);
  }
  return out;
}

std::string safetensors_of(const std::vector<NamedTensor>& tensors) {
  std::vector<files::OutputTensor> outputs;
  std::map<std::string, at::Tensor> by_name;
  for (const NamedTensor& one : tensors) {
    outputs.push_back(files::output_tensor(one.name, Dtype::kFloat32, one.tensor.sizes().vec()));
    by_name.emplace(one.name, one.tensor);
  }
  const files::DataFileLayout layout = files::lay_out("", std::move(outputs), {{"format", "pt"}});
  std::string out = layout.header;
  out.resize(layout.size_bytes);
  for (const files::OutputTensor& one : layout.tensors) {
    const auto* bytes = static_cast<const char*>(by_name.at(one.name).const_data_ptr());
    out.replace(one.offset, one.size_bytes, bytes, one.size_bytes);
  }
  return out;
}

LoraOptions options_of(const PeftConfig& config) {
  LoraOptions out;
  out.rank = config.rank;
  out.alpha = config.alpha;
  out.is_rank_stabilised = config.is_rank_stabilised;
  out.is_weight_decomposed = config.is_weight_decomposed;
  return out;
}

at::Tensor values_of(const PeftAdapter& file, const files::TensorRecord* record) {
  if (!record) return {};
  at::Tensor out = at::empty(record->shape, at::kFloat);
  file.read(*record, 0, {out.mutable_data_ptr<float>(), static_cast<std::size_t>(out.numel())});
  return out;
}

Lora::Adapter adapter_of(const PeftAdapter& file, const PeftModule& module, double weight) {
  return {.name = module.name,
          .a = values_of(file, module.a),
          .b = values_of(file, module.b),
          .magnitude = values_of(file, module.magnitude),
          .scaling = module.scaling,
          .weight = weight};
}

}  // namespace

std::unique_ptr<Lora> read_peft_adapters(const models::CausalLM& model, std::span<const WeightedAdapter> directories) {
  if (directories.empty()) throw Error(ErrorCode::kInvalidArgument, "LoRA: there is no adapter to read");
  std::optional<LoraOptions> options;
  std::vector<Lora::Adapter> adapters;
  for (const auto& [directory, weight] : directories) {
    const PeftAdapter file = open_peft_adapter(directory);
    if (!options) options = options_of(file.config);
    for (const PeftModule& module : file.modules) adapters.push_back(adapter_of(file, module, weight));
  }
  return std::make_unique<Lora>(model, *options, std::move(adapters));
}

std::unique_ptr<Lora> read_peft_adapter(const models::CausalLM& model, const fs::path& path, const LoraOptions& how) {
  const PeftAdapter file = open_peft_adapter(path);
  LoraOptions options = options_of(file.config);
  options.dropout = how.dropout;
  options.seed = how.seed;
  std::vector<Lora::Adapter> adapters;
  for (const PeftModule& module : file.modules) {
    Lora::Adapter& one = adapters.emplace_back(adapter_of(file, module, 1));
    for (at::Tensor tensor : {one.a, one.b, one.magnitude}) {
      if (tensor.defined()) tensor.requires_grad_(true);
    }
  }
  return std::make_unique<Lora>(model, options, std::move(adapters));
}

void write_peft_adapter(const Lora& lora, const std::string& base, const Destination& destination) {
  destination.write_file(kAdapterWeightsFile, safetensors_of(tensors_of(lora)));
  destination.write_file(kAdapterConfigFile, config_of(lora, base).dump(2) + "\n");
}

}  // namespace halfbyte::convert
