// Gathering asks for every tensor that a model needs, in the order of use, and the modules stand where it has them.
#include <algorithm>

#include <halfbyte/causal_lm.h>

#include "models/architectures/architecture.h"
#include "models/modules/tensor_source.h"
#include "tests/catch.h"
#include "tests/models/parse_config.h"
#include "tests/models/random_source.h"

namespace halfbyte::models {
namespace {

void check_family(const Architecture& row, const Naming& naming) {
  ModelConfig config = row.parse(full_config_of(std::string(row.model_type)));
  config.naming = &naming;
  config.layers.at(1).has_experts = false;
  tests::RandomSource source(config);
  const auto model = std::make_shared<CausalLM>(config, gather_weights(config, source), DtypePolicy::float32());
  std::vector<std::string> wanted;
  for (const ExpectedTensor& tensor : row.expected(config)) wanted.push_back(tensor.name);
  CHECK(source.asked == wanted);
  CHECK(source.buffers.size() == config.ropes.size());
  const auto parameters = model->named_parameters();
  for (const ExpectedTensor& tensor : row.expected(config)) {
    INFO(tensor.name);
    const bool are_biases = tensor.role == Role::kBias && tensor.shape.size() == 2;
    if (tensor.shape.size() == 3 || are_biases) continue;  // a module an expert
    REQUIRE(parameters.contains(tensor.name));
    CHECK(parameters[tensor.name].sizes() == at::IntArrayRef(tensor.shape));
  }
}

TEST_CASE("gathering asks for every tensor that a model needs, in order, and every one becomes a parameter",
          "[gather_weights]") {
  for (const Architecture& row : architectures()) {
    for (const Naming& naming : row.namings) {
      INFO(row.model_type << ", naming " << &naming - row.namings.data());
      check_family(row, naming);
    }
  }
}

}  // namespace
}  // namespace halfbyte::models
