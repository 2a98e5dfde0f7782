#include "models/parallel/stages.h"

#include <cstdint>
#include <string>
#include <vector>

#include <halfbyte/error.h>

#include "tests/catch.h"

namespace halfbyte::models {
namespace {

using Layers = std::vector<std::int64_t>;

ModelConfig config_of(std::size_t layers) {
  ModelConfig out;
  out.layers.resize(layers);
  out.num_hidden_layers = static_cast<std::int64_t>(layers);
  return out;
}

Layers first_of(const ModelConfig& config, const std::vector<std::uint64_t>& bytes, int stages) {
  return first_layers(config, bytes, stages);
}

}  // namespace

TEST_CASE("stages: layers are divided by their bytes", "[ranks]") {
  CHECK(first_of(config_of(4), {1, 1, 1, 1}, 2) == Layers{0, 2});
  CHECK(first_of(config_of(4), {5, 1, 1, 1}, 2) == Layers{0, 1});
  CHECK(first_of(config_of(6), {1, 1, 1, 1, 1, 7}, 3) == Layers{0, 2, 5});  // the first of two as good
  CHECK(first_of(config_of(3), {1, 1, 1}, 3) == Layers{0, 1, 2});
  const Layers even = first_of(config_of(22), std::vector<std::uint64_t>(22, 1000), 4);
  for (std::size_t i = 0; i + 1 < even.size(); ++i) {
    CHECK(even[i + 1] - even[i] >= 5);
    CHECK(even[i + 1] - even[i] <= 6);
  }
}

TEST_CASE("stages: layers stay with those whose keys they read", "[ranks]") {
  ModelConfig config = config_of(6);
  config.layers[4].keys_of = 2;
  config.layers[5].keys_of = 2;
  CHECK(first_of(config, {1, 1, 1, 1, 1, 1}, 2) == Layers{0, 2});
  CHECK(first_of(config, {1, 1, 1, 1, 1, 1}, 3) == Layers{0, 1, 2});
  CHECK_THROWS_WITH(first_of(config, {1, 1, 1, 1, 1, 1}, 4),
                    Catch::Contains("can be divided into 3 stages at most, not 4"));
  config.layers[5].keys_of = 4;
  config.layers[4].keys_of = -1;
  CHECK(first_of(config, {1, 1, 1, 1, 9, 9}, 2) == Layers{0, 4});
}

TEST_CASE("stages: where a rank is", "[ranks]") {
  const Stage stage = stage_of(5, 6, 3);
  CHECK(stage.index == 2);
  CHECK(stage.place == 1);
  CHECK(stage.ranks() == std::vector<int>{4, 5});
  CHECK(stage.rank_at(0) == 1);
  CHECK(stage.is_last());
  CHECK_THROWS_WITH(stage_of(0, 4, 3), Catch::Contains("4 ranks cannot be divided into 3 stages"));
  const ModelConfig own = staged(config_of(4), std::vector<std::uint64_t>{1, 1, 1, 1}, stage_of(1, 2, 2));
  CHECK_FALSE(own.has_layer(1));
  CHECK(own.has_layer(2));
  CHECK(own.has_last_layer());
  CHECK_FALSE(own.has_embedding());
}

}  // namespace halfbyte::models
