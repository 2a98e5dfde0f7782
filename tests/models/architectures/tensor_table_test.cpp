// The table of tensors against itself: what a model needs has the role that its name says, and is there when it should
// be. Without LibTorch.
#include "models/architectures/tensor_table.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "models/architectures/architecture.h"
#include "tests/catch.h"
#include "tests/models/parse_config.h"

namespace halfbyte::models {
namespace {

// What a configuration may say beside what its family says.
struct Variant {
  const char* what;
  void (*change)(ModelConfig& config);
};

constexpr Variant kVariants[] = {
    {"as parsed", [](ModelConfig&) {}},
    {"biases everywhere", [](ModelConfig& c) { c.qkv_bias = c.output_bias = c.mlp_bias = true; }},
    {"no biases", [](ModelConfig& c) { c.qkv_bias = c.output_bias = c.mlp_bias = false; }},
    {"norms of each query and key", [](ModelConfig& c) { c.query_key_norm = QueryKeyNorm::kEachHead; }},
    {"norms of all queries and all keys", [](ModelConfig& c) { c.query_key_norm = QueryKeyNorm::kAllHeads; }},
    {"no final norm", [](ModelConfig& c) { c.has_final_norm = false; }},
    {"one layer without experts", [](ModelConfig& c) { c.layers.at(1).has_experts = false; }},
};

// Of every family, under each of its namings.
void for_each_model(const std::function<void(const Architecture&, const ModelConfig&)>& check) {
  for (const Architecture& row : architectures()) {
    for (const Naming& naming : row.namings) {
      for (const Variant& variant : kVariants) {
        ModelConfig config = row.parse(full_config_of(std::string(row.model_type)));
        config.naming = &naming;
        variant.change(config);
        INFO(row.model_type << ", naming " << &naming - row.namings.data() << ", " << variant.what);
        check(row, config);
      }
    }
  }
}

std::vector<ModuleAt> modules_called(const ModelConfig& config, ModuleName module) {
  std::vector<ModuleAt> out = modules_of(config);
  std::erase_if(out, [&](const ModuleAt& at) { return at.row->module != module; });
  return out;
}

TEST_CASE("every module stands in the table once", "[tensor_table]") {
  for (const TensorRow& row : tensor_table()) {
    CHECK(std::ranges::count(tensor_table(), row.module, &TensorRow::module) == 1);
    CHECK(&row_of(row.module) == &row);
    CHECK((row.shape[0] == nullptr) == (row.role == Role::kBuffer));
  }
}

TEST_CASE("the name of every tensor that a model needs gives its role back", "[tensor_table]") {
  for_each_model([](const Architecture& row, const ModelConfig& config) {
    for (const ExpectedTensor& tensor : row.expected(config)) {
      INFO(tensor.name);
      CHECK(role_of(&row, tensor.name, tensor.shape) == tensor.role);
    }
    for (const DerivedBuffer& buffer : row.derived(config)) CHECK(role_of(&row, buffer.name, {}) == Role::kBuffer);
  });
}

TEST_CASE("no tensor is needed twice, and all have a size", "[tensor_table]") {
  for_each_model([](const Architecture& row, const ModelConfig& config) {
    std::set<std::string> names;
    for (const ExpectedTensor& tensor : row.expected(config)) {
      INFO(tensor.name);
      CHECK(names.insert(tensor.name).second);
      CHECK_FALSE(tensor.shape.empty());
      CHECK(std::ranges::all_of(tensor.shape, [](std::int64_t size) { return size > 0; }));
    }
  });
}

TEST_CASE("a model has either of two forms of a module, and experts or an MLP, layer by layer", "[tensor_table]") {
  const auto count = [](const ModelConfig& config, ModuleName module, std::int64_t layer) {
    return std::ranges::count(modules_called(config, module), layer, &ModuleAt::layer);
  };
  for_each_model([&](const Architecture&, const ModelConfig& config) {
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      const bool has_experts = config.layer(layer).has_experts;
      const bool is_stacked = !config.naming->stacked_down.empty();
      const bool attends = config.layer(layer).mixer == MixerKind::kAttention;
      const bool has_norm = attends && config.query_key_norm != QueryKeyNorm::kNone && config.has_query_key_weights;
      const auto is_mixed_by = [&](MixerKind kind) { return config.layer(layer).mixer == kind ? 1 : 0; };
      CHECK(count(config, &Naming::query, layer) + count(config, &Naming::fused_qkv, layer) == (attends ? 1 : 0));
      CHECK(count(config, &Naming::query_norm, layer) == (has_norm ? 1 : 0));
      CHECK(count(config, &Naming::convolution_kernel, layer) == is_mixed_by(MixerKind::kConvolution));
      CHECK(count(config, &Naming::delta_kernel, layer) == is_mixed_by(MixerKind::kDelta));
      CHECK(count(config, &Naming::latent_up, layer) == is_mixed_by(MixerKind::kLatent));
      CHECK(count(config, &Naming::gate, layer) + count(config, &Naming::fused_gate_up, layer) ==
            (has_experts && !config.layer(layer).has_mlp_beside ? 0 : 1));
      CHECK(count(config, &Naming::router, layer) == (has_experts ? 1 : 0));
      CHECK(count(config, &Naming::expert_down, layer) == (has_experts && !is_stacked ? config.moe.num_experts : 0));
      CHECK(count(config, &Naming::stacked_down, layer) == (has_experts && is_stacked ? 1 : 0));
    }
    CHECK(modules_called(config, &Naming::final_norm).empty() == !config.has_final_norm);
    CHECK(modules_called(config, &Naming::embedding).size() == 1);
    CHECK(modules_called(config, &Naming::layer_rotary).empty());
  });
}

TEST_CASE("norms stand where the family has a name for them", "[tensor_table]") {
  for_each_model([](const Architecture&, const ModelConfig& config) {
    for (const ModuleName norm :
         {&Naming::input_norm, &Naming::attention_output_norm, &Naming::mlp_norm, &Naming::mlp_output_norm}) {
      const std::size_t wanted = (config.naming->*norm).empty() ? 0 : config.layers.size();
      CHECK(modules_called(config, norm).size() == wanted);
    }
  });
}

TEST_CASE("a bias is needed where the configuration says so, and known by name everywhere", "[tensor_table]") {
  for_each_model([](const Architecture& row, const ModelConfig& config) {
    for (const ModuleAt& module : modules_of(config)) {
      INFO(module.path);
      const bool is_wanted = module.row->has_bias && config.*module.row->has_bias;
      CHECK(module.has_bias == is_wanted);
      if (module.row->role == Role::kLinear && module.row->place != Place::kExperts)
        CHECK(role_of(&row, module.bias(), {}) == Role::kBias);
    }
  });
}

TEST_CASE("tensors come layer by layer, an expert's together", "[tensor_table]") {
  for_each_model([](const Architecture&, const ModelConfig& config) {
    const std::vector<ModuleAt> modules = modules_of(config);
    CHECK(modules.front().row->role == Role::kEmbedding);
    CHECK(modules.back().row->role == Role::kHead);
    std::int64_t layer = 0;
    for (std::size_t i = 1; i < modules.size(); ++i) {
      if (modules[i].layer < 0) continue;
      CHECK(modules[i].layer >= layer);
      layer = modules[i].layer;
      const bool is_next = modules[i - 1].layer == layer && modules[i - 1].expert >= 0 && modules[i].expert >= 0;
      if (is_next) CHECK(modules[i].expert - modules[i - 1].expert <= 1);
      if (is_next) CHECK(modules[i].expert >= modules[i - 1].expert);
    }
  });
}

TEST_CASE("what old files hold beside their weights is known, and not needed", "[tensor_table]") {
  for (const Architecture& row : architectures()) {
    const Naming& naming = row.family->namings.front();
    const std::string buffer =
        path_above(naming, Place::kAttention, "7", "") + std::string(naming.layer_rotary) + ".inv_freq";
    INFO(buffer);
    CHECK(role_of(&row, buffer, {}) == Role::kBuffer);
  }
}

}  // namespace
}  // namespace halfbyte::models
