// The policy original(): a checkpoint computes in what it recorded, and where dtypes meet they are promoted.
#include "tests/catch.h"

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "tests/loader/files/scratch.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

at::Tensor logits(const Model& model) {
  const c10::InferenceMode guard;
  return model.module().forward(at::tensor({1, 5, 9, 3, 7, 2, 8, 8, 4, 6, 2, 2, 3, 4, 5, 6, 7, 8, 9, 1}).view({2, 10}));
}

std::vector<TokenIds> texts(const Model& model) {
  std::vector<TokenIds> out;
  for (auto& generation : model.generate({{1, 5, 9, 3}, {2, 3}}, {.max_gen_len = 12, .temperature = 0})) {
    out.push_back(std::move(generation.tokens));
  }
  return out;
}

TEST_CASE("original: a checkpoint of one dtype computes what that dtype's policy computes", "[original]") {
  const struct {
    Dtype recorded;
    DtypePolicy policy;
  } rows[] = {{Dtype::kBfloat16, DtypePolicy::bfloat16()},
              {Dtype::kFloat16, DtypePolicy::half()},
              {Dtype::kFloat32, DtypePolicy::float32()}};
  for (const auto& row : rows) {
    testing::Scratch scratch;
    testing::write_checkpoint(scratch / "dense", testing::llama_tensors(true, row.recorded), testing::llama_config());
    convert::quantize(scratch / "dense", scratch / "4bit");
    for (const char* name : {"dense", "4bit"}) {
      INFO(name << " " << row.policy.name());
      const Model original = load_low_bit(scratch / name, {.dtype = DtypePolicy::original()});
      const Model uniform = load_low_bit(scratch / name, {.dtype = row.policy});
      CHECK(logits(original).equal(logits(uniform)));
      CHECK(texts(original) == texts(uniform));
      CHECK(original.report().bytes_with(Placement::kCast) == 0);
    }
  }
}

TEST_CASE("original: a checkpoint of many dtypes promotes where they meet, as it is and in 4 bits", "[original]") {
  testing::Scratch scratch;
  constexpr Dtype kDtypes[] = {Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32};
  // Each rotation gives every tensor another dtype.
  for (std::size_t shift = 0; shift < std::size(kDtypes); ++shift) {
    auto tensors = testing::llama_tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensors[i] = testing::float_tensor(tensors[i].name, tensors[i].shape, kDtypes[(i + shift) % std::size(kDtypes)]);
    }
    const auto dense = scratch / ("dense" + std::to_string(shift));
    const auto low_bit = scratch / ("4bit" + std::to_string(shift));
    testing::write_checkpoint(dense, tensors, testing::llama_config());
    convert::quantize(dense, low_bit);
    for (const auto& path : {dense, low_bit}) {
      INFO(path);
      const Model original = load_low_bit(path, {.dtype = DtypePolicy::original()});
      const Model reference = load_low_bit(path, {.dtype = DtypePolicy::float32()});
      const at::Tensor wanted = logits(reference);
      const double error = (logits(original) - wanted).abs().max().item<double>() / wanted.abs().max().item<double>();
      CHECK(error < 0.005);  // measured: .0019
      CHECK(texts(original).at(1).size() == 12);
      for (const auto& item : original.module().named_parameters()) {
        const auto line = std::ranges::find(original.report().tensors, item.key(), &LoadedTensor::name);
        REQUIRE(line != original.report().tensors.end());
        CHECK(line->loaded == name(*line->recorded));
      }
    }
  }
}

}  // namespace
}  // namespace halfbyte
