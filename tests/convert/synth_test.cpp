#include "convert/synth.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "convert/synth_shapes.h"
#include "convert/synth_values.h"
#include "loader/files/hash.h"
#include "loader/files/tensor_reader.h"
#include "loader/files/verify.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

TEST_CASE("synth: a model that opens, sharded and not", "[synth]") {
  const Scratch scratch;
  const std::uint64_t bytes = convert::synth(scratch / "one", {.like = "tiny"}).size_bytes;
  const auto one = files::open_checkpoint(scratch / "one");
  CHECK(one.size_bytes == bytes);
  REQUIRE(one.architecture);
  const auto expected = one.architecture->expected(one.model_config());
  CHECK(one.tensors.size() == expected.size());
  for (const auto& tensor : expected) {
    INFO(tensor.name);
    REQUIRE(one.find(tensor.name));
    CHECK(one.find(tensor.name)->shape == tensor.shape);
  }
  convert::synth(scratch / "many", {.like = "tiny", .shard_bytes = 200'000});
  const auto many = files::open_checkpoint(scratch / "many");
  CHECK(many.data_files.size() > 2);
  const auto report = files::verify(many, &one);
  CHECK(report.findings.empty());
  for (const auto& difference : report.differences) CHECK(difference.max_abs == 0);
}

TEST_CASE("synth: values are normally distributed, norms are one", "[synth]") {
  const Scratch scratch;
  convert::synth(scratch / "m", {.like = "tiny", .dtype = Dtype::kFloat32});
  const auto opened = files::open_checkpoint(scratch / "m");
  files::TensorReader embedding(opened, *opened.manifest.find("model.embed_tokens.weight"));
  std::vector<float> values(static_cast<std::size_t>(embedding.size()));
  embedding.read(0, values);
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  for (const float value : values) {
    const double x = static_cast<double>(value) / 0.02;
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
  }
  const auto n = static_cast<double>(values.size());
  CHECK(std::abs(sum / n) < 0.02);
  CHECK(squares / n == Approx(1.0).epsilon(0.02));
  CHECK(fourths / n == Approx(3.0).epsilon(0.1));  // 2.9 for twelve uniform numbers
  files::TensorReader norm(opened, *opened.manifest.find("model.norm.weight"));
  values.resize(static_cast<std::size_t>(norm.size()));
  norm.read(0, values);
  CHECK(values == std::vector<float>(values.size(), 1.0F));
}

TEST_CASE("synth: the bytes depend on the seed and on nothing else", "[synth]") {
  std::vector<std::byte> whole(100'000);
  convert::fill_normal(convert::value_key(7, "a"), 0, 0.02F, Dtype::kBfloat16, whole);
  std::vector<std::byte> part(20'002);
  convert::fill_normal(convert::value_key(7, "a"), 10'001, 0.02F, Dtype::kBfloat16, part);
  CHECK(std::equal(part.begin(), part.end(), whole.begin() + 20'002));
  CHECK(convert::value_key(7, "a") != convert::value_key(8, "a"));
  CHECK(convert::value_key(7, "a") != convert::value_key(7, "b"));
  // The same on every machine, for ever: numbers that were measured on synthetic models stay comparable.
  CHECK(files::hash_hex(std::string(reinterpret_cast<const char*>(whole.data()), whole.size())) ==
        "b852ed6341ff556f8254f26d56e6876b");
}

TEST_CASE("synth: shapes have as many weights as the published models", "[synth]") {
  // Billions. Source: model cards; of models that see or hear, without their towers.
  const std::map<std::string, double> published = {
      {"llama-1.1b", 1.10},  {"llama-7b", 6.74},    {"llama-3.2-1b", 1.24},    {"llama-3.1-8b", 8.03},
      {"qwen3-0.6b", 0.596}, {"qwen3-4b", 4.02},    {"qwen3-30b-a3b", 30.5},   {"qwen3.6-35b-a3b", 34.7},
      {"mixtral", 46.7},     {"gpt-oss-20b", 20.9}, {"gemma-4-26b-a4b", 25.2}, {"deepseek-v3", 671.0},
      {"gemma-3-1b", 1.00}};
  for (const std::string_view like : convert::synth_shapes()) {
    INFO(like);
    const nlohmann::json config = convert::synth_config(std::string(like), 0);
    const models::Architecture* family = models::find_architecture(config);
    REQUIRE(family);
    const models::ModelConfig model = family->parse(config);
    double weights = 0;
    for (const auto& tensor : models::Architecture::expected(model)) {
      double values = 1;
      for (const std::int64_t size : tensor.shape) values *= static_cast<double>(size);
      if (!model.tie_word_embeddings || tensor.role != models::Role::kHead) weights += values;
    }
    if (like != "tiny") CHECK(weights / 1e9 == Approx(published.at(std::string(like))).epsilon(0.01));
    const nlohmann::json less = convert::synth_config(std::string(like), 2);
    CHECK(family->parse(less).layers.size() == 2);
  }
}

TEST_CASE("synth: experts a matrix each, or stacked in one tensor", "[synth]") {
  nlohmann::json config = convert::synth_config("mixtral", 1);
  const models::Architecture& family = *models::find_architecture(config);
  const Scratch scratch;
  for (const auto& [experts, name, count] :
       {std::tuple{convert::SynthExperts::kUsual, "block_sparse_moe.experts.7.w2.weight", 8 * 3},
        {convert::SynthExperts::kSeparate, "block_sparse_moe.experts.7.w2.weight", 8 * 3},
        {convert::SynthExperts::kStacked, "mlp.experts.down_proj", 2}}) {
    models::ModelConfig model = family.parse(config);
    convert::choose_naming(family, "mixtral", experts, model);
    const auto expected = models::Architecture::expected(model);
    CHECK(std::ranges::count_if(expected,
                                [&](const auto& t) { return t.name == std::string("model.layers.0.") + name; }) == 1);
    CHECK(std::ranges::count_if(expected, [](const auto& t) { return t.name.find(".experts.") != t.name.npos; }) ==
          count);
  }
}

TEST_CASE("synth: wishes that make no sense", "[synth]") {
  const Scratch scratch;
  check_error(ErrorCode::kInvalidArgument, {"\"llama-3b\"", "tiny, llama-1.1b, llama-7b"},
              [&] { convert::synth(scratch / "m", {.like = "llama-3b"}); });
  check_error(ErrorCode::kInvalidArgument, {"int8"},
              [&] { convert::synth(scratch / "m", {.like = "tiny", .dtype = Dtype::kInt8}); });
  check_error(ErrorCode::kInvalidArgument, {"3 layers", "tiny has 2"},
              [&] { convert::synth(scratch / "m", {.like = "tiny", .layers = 3}); });
  check_error(ErrorCode::kInvalidArgument, {"layers of tiny", "have no experts"},
              [&] { convert::synth(scratch / "m", {.like = "tiny", .experts = convert::SynthExperts::kStacked}); });
  check_error(ErrorCode::kInvalidArgument, {"always stacked"}, [&] {
    convert::synth(scratch / "m", {.like = "gpt-oss-20b", .layers = 1, .experts = convert::SynthExperts::kSeparate});
  });
  CHECK(names_in(scratch.path()).empty());
}
