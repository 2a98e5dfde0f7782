#include "convert/synth.h"

#include <cmath>

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

TEST_CASE("synth: wishes that make no sense", "[synth]") {
  const Scratch scratch;
  check_error(ErrorCode::kInvalidArgument, {"\"llama-3b\"", "tiny, llama-1.1b, llama-7b"},
              [&] { convert::synth(scratch / "m", {.like = "llama-3b"}); });
  check_error(ErrorCode::kInvalidArgument, {"int8"},
              [&] { convert::synth(scratch / "m", {.like = "tiny", .dtype = Dtype::kInt8}); });
  CHECK(names_in(scratch.path()).empty());
}
