// config.json of every family, and what is derived from it.
#include <nlohmann/json.hpp>

#include <halfbyte/dtype_policy.h>

#include "loader/files/json_text.h"
#include "models/architectures/architecture.h"
#include "tests/fuzz/target.h"

namespace halfbyte::fuzz {
namespace {

constexpr std::int64_t kMostTensors = 20'000;  // to name them all takes long; that is bounded where files are read

}  // namespace

void fuzz_config(std::string_view input) {
  const auto config = nlohmann::json(files::parse_json<nlohmann::ordered_json>(input, "fuzz", files::kConfigLimits));
  models::declared_dtype(config);
  const models::Architecture* architecture = models::find_architecture(config);
  if (!architecture) return;
  models::ModelConfig model = architecture->parse(config);
  require(std::ssize(model.layers) == model.num_hidden_layers, "every layer has its configuration");
  for (const auto& layer : model.layers)
    require(layer.rope == models::kNoRope || layer.rope < model.ropes.size(), "a layer's rope is there");
  models::Architecture::derived(model);
  models::Architecture::ties(model);
  const std::int64_t experts = std::max<std::int64_t>(1, model.moe.num_experts);
  if (model.num_hidden_layers > kMostTensors || experts > kMostTensors / 16 / model.num_hidden_layers) return;
  architecture->choose_naming(model, [](const std::string& name) { return name.size() % 2 == 0; });
  for (const auto& tensor : models::Architecture::expected(model))
    require(models::role_of(architecture, tensor.name, tensor.shape) == tensor.role,
            "a tensor has the role it is expected in");
}

}  // namespace halfbyte::fuzz
