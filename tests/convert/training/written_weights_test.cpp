// Trained values in a checkpoint's place: of every family, and what cannot be written.
#include "convert/training/written_weights.h"

#include <map>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>

#include <nlohmann/json.hpp>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "loader/files/checkpoint.h"
#include "loader/files/verify.h"
#include "tests/loader/files/scratch.h"
#include "tests/models/training/trained_family.h"

namespace halfbyte {
namespace {

using convert::Destination;
using testing::check_error;
using testing::Scratch;
using training::NamedTensor;

std::map<std::string, at::Tensor> parameters_of(const Model& model) {
  std::map<std::string, at::Tensor> out;
  for (const auto& item : model.module().named_parameters()) {
    if (at::isFloatingType(item.value().scalar_type())) out.emplace(item.key(), item.value());
  }
  return out;
}

Model loaded(const std::filesystem::path& path) { return load_low_bit(path, {.dtype = DtypePolicy::original()}); }

// Others than there were, which every dtype holds; a weight under two names is one.
std::vector<NamedTensor> other_values(const Model& model) {
  std::vector<NamedTensor> out;
  std::map<const void*, bool> seen;
  at::Generator random = at::make_generator<at::CPUGeneratorImpl>(5);
  for (const auto& item : model.module().named_parameters()) {
    const at::Tensor& value = item.value();
    if (!at::isFloatingType(value.scalar_type()) || !seen.emplace(value.const_data_ptr(), true).second) continue;
    const at::ScalarType type = out.size() % 2 == 0 ? at::kFloat : at::kBFloat16;
    out.push_back({item.key(), at::randint(-100, 100, value.sizes(), random, at::kFloat).div_(64).to(type)});
  }
  return out;
}

std::vector<std::string> names_of(const std::vector<NamedTensor>& weights) {
  std::vector<std::string> out;
  for (const NamedTensor& one : weights) out.push_back(one.name);
  return out;
}

void write(const std::filesystem::path& source, const std::vector<NamedTensor>& weights,
           const std::filesystem::path& path) {
  Destination destination(path, {});
  convert::write_weights(source, weights, destination, models::HeldJson(nlohmann::json{{"steps", 3}}));
  destination.commit();
}

void check_layout(const files::Checkpoint& before, const files::Checkpoint& after) {
  REQUIRE(after.tensors.size() == before.tensors.size());
  for (const files::StoredTensor& one : before.tensors) {
    INFO(one.name);
    const files::StoredTensor* found = after.find(one.name);
    REQUIRE(found);
    CHECK(found->dtype == one.dtype);
    CHECK(found->shape == one.shape);
  }
}

}  // namespace

TEST_CASE("trained values of every family are read back, in the dtypes that there were", "[training]") {
  for (const auto& path : tests::all_families()) {
    INFO(path.filename());
    const Scratch scratch;
    const Model model = loaded(path);
    const std::vector<NamedTensor> weights = other_values(model);
    convert::check_writable(path, names_of(weights));
    write(path, weights, scratch / "out");
    const Model again = loaded(scratch / "out");
    const auto found = parameters_of(again);
    for (const NamedTensor& one : weights) {
      INFO(one.name);
      CHECK(at::equal(found.at(one.name).to(at::kFloat), one.tensor.to(at::kFloat)));
      CHECK(found.at(one.name).scalar_type() == parameters_of(model).at(one.name).scalar_type());
    }
    const files::Checkpoint after = files::open_checkpoint(scratch / "out");
    check_layout(files::open_checkpoint(path), after);
    CHECK(files::verify(after).findings.empty());
    CHECK_FALSE(after.is_quantized());
  }
}

TEST_CASE("what is not trained stays, and halfbyte.json says what was", "[training]") {
  const Scratch scratch;
  const auto source = tests::data("tiny-llama");
  const Model model = loaded(source);
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  const at::Tensor before = parameters_of(model).at(name);
  write(source, {{name, before.to(at::kFloat) + 1}}, scratch / "out");
  const Model again = loaded(scratch / "out");
  for (const auto& [each, value] : parameters_of(again)) {
    INFO(each);
    const at::Tensor was = parameters_of(model).at(each);
    CHECK(at::equal(value, each == name ? (was.to(at::kFloat) + 1).to(was.scalar_type()) : was));
  }
  const auto record = *files::open_checkpoint(scratch / "out").manifest.conversion;
  CHECK(record["training"]["steps"] == 3);
  CHECK(record["training"]["base"]["name"] == "tiny-llama");
  CHECK(testing::read_text(scratch / "out" / "config.json") == testing::read_text(source / "config.json"));
}

TEST_CASE("weights that cannot be written are named", "[training]") {
  const Scratch scratch;
  const auto source = tests::data("tiny-llama");
  const std::vector<std::string> head{"lm_head.weight"}, unknown{"model.layers.0.mlp.side_proj.weight"};
  const std::vector<std::string> packed{"model.layers.0.mlp.up_proj.weight"};
  check_error(ErrorCode::kUnsupported, {"\"" + unknown[0] + "\"", "no tensor of that name"},
              [&] { convert::check_writable(source, unknown); });
  convert::quantize(source, scratch / "packed", {});
  check_error(ErrorCode::kUnsupported, {"\"" + packed[0] + "\"", "packed"},
              [&] { convert::check_writable(scratch / "packed", packed); });
  testing::write_checkpoint(scratch / "twice", testing::llama_tensors(), testing::llama_config(/*is_tied=*/true));
  check_error(ErrorCode::kUnsupported, {"\"lm_head.weight\"", "ties"},
              [&] { convert::check_writable(scratch / "twice", head); });
  testing::write_checkpoint(scratch / "half", testing::llama_tensors(true, Dtype::kFloat16), testing::llama_config());
  const at::Tensor large = at::full({16, 32}, 1e5), small = at::full({3, 32}, 1.0);
  check_error(ErrorCode::kUnsupported, {"lm_head.weight", "float16"}, [&] {
    write(scratch / "half", {{head[0], large}}, scratch / "out");
  });
  check_error(ErrorCode::kInvalidArgument, {"lm_head.weight", "shape"}, [&] {
    write(scratch / "half", {{head[0], small}}, scratch / "out");
  });
  CHECK_FALSE(std::filesystem::exists(scratch / "out"));
}

}  // namespace halfbyte
