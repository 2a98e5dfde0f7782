#include "convert/adapters/peft_files.h"

#include <map>
#include <set>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>
#include <halfbyte/load_state.h>

#include "convert/output/destination.h"
#include "loader/files/data_file_layout.h"
#include "loader/files/directory.h"
#include "loader/files/file_tree.h"
#include "loader/files/json_text.h"
#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPrefix = "base_model.model.";
constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kWeightsFile = "adapter_model.safetensors";

// The last parts of the adapters' names: peft's names for "every Linear called so".
std::set<std::string> last_parts(const Lora& lora) {
  std::set<std::string> out;
  for (const Lora::Adapter& one : lora.adapters()) out.insert(one.name.substr(one.name.rfind('.') + 1));
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
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"r", options.rank},
          {"lora_alpha", options.alpha},
          {"lora_dropout", options.dropout},
          {"use_rslora", options.is_rank_stabilised},
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
    out.push_back({kPrefix + one.name + ".lora_A.weight", one.a.detach().contiguous()});
    out.push_back({kPrefix + one.name + ".lora_B.weight", one.b.detach().contiguous()});
  }
  return out;
}

[[noreturn]] void fail(const fs::path& path, ErrorCode code, const std::string& problem) {
  throw Error(code, files::printable_path(path) + ": " + problem);
}

LoraOptions options_of(const fs::path& path) {
  const fs::path file = path / kConfigFile;
  const auto config = files::parse_json<nlohmann::json>(files::read_text(file, files::kConfigLimits.max_bytes),
                                                        files::printable_path(file), files::kConfigLimits);
  try {
    if (config.at("peft_type") != "LORA" || config.value("use_dora", false) || config.value("bias", "none") != "none" ||
        !config.value("modules_to_save", nlohmann::json()).is_null() ||
        !config.value("rank_pattern", nlohmann::json::object()).empty() ||
        !config.value("alpha_pattern", nlohmann::json::object()).empty())
      fail(file, ErrorCode::kUnsupported, "plain LoRA of one rank is what is read");
    LoraOptions out;
    out.rank = config.at("r").get<std::int64_t>();
    out.alpha = config.at("lora_alpha").get<double>();
    out.is_rank_stabilised = config.value("use_rslora", false);
    return out;
  } catch (const nlohmann::json::exception& error) {
    fail(file, ErrorCode::kCorrupt, error.what());
  }
}

// Which matrix of whose adapter a tensor is.
struct Half {
  std::string linear;
  bool is_a;
};
Half half_of(const fs::path& path, std::string_view name) {
  constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
  const bool is_a = name.ends_with(kA);
  if (!name.starts_with(kPrefix) || (!is_a && !name.ends_with(kB)))
    fail(path, ErrorCode::kUnsupported, "tensor " + files::in_quotes(std::string(name)) + " is no matrix of a LoRA");
  name.remove_prefix(std::string_view(kPrefix).size());
  name.remove_suffix(kA.size());
  return {std::string(name), is_a};
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

}  // namespace

std::unique_ptr<Lora> read_peft_adapter(const models::CausalLM& model, const fs::path& path) {
  const LoraOptions options = options_of(path);
  const State state = load_state(path / kWeightsFile);
  std::map<std::string, Lora::Adapter> by_name;
  for (const auto& [name, tensor] : state) {
    const Half half = half_of(path, name);
    Lora::Adapter& adapter = by_name[half.linear];
    adapter.name = half.linear;
    (half.is_a ? adapter.a : adapter.b) = tensor.dense().to(at::kFloat);
  }
  std::vector<Lora::Adapter> adapters;
  for (auto& [name, adapter] : by_name) {
    if (!adapter.a.defined() || !adapter.b.defined())
      fail(path, ErrorCode::kCorrupt, "of '" + name + "' there is one matrix of two");
    adapters.push_back(std::move(adapter));
  }
  return std::make_unique<Lora>(model, options, std::move(adapters));
}

void write_peft_adapter(const Lora& lora, const std::string& base, const fs::path& path, bool overwrite) {
  Destination destination(path, {.overwrite = overwrite});
  destination.write_file(kWeightsFile, safetensors_of(tensors_of(lora)));
  destination.write_file(kConfigFile, config_of(lora, base).dump(2) + "\n");
  destination.commit();
}

}  // namespace halfbyte::convert
