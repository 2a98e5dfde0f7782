// gpt-oss as published: experts in MXFP4, which lie row by row, run from their codes as the same values do that lie
// column by column.
#include "tests/catch.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "loader/files/checkpoint.h"
#include "tests/models/reference.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

constexpr float kValues[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
constexpr const char* kStacks[] = {"gate_up_proj", "down_proj"};

bool is_stack(const std::string& name) {
  return std::ranges::any_of(kStacks,
                             [&](const char* stack) { return name.ends_with(std::string("experts.") + stack); });
}

struct Mx {
  at::Tensor blocks;  // (experts, out_features, in_features / 32, 16), uint8: the first of two codes in the low bits
  at::Tensor scales;  // (experts, out_features, in_features / 32), uint8: powers of two
  at::Tensor dense;   // (experts, in_features, out_features), bfloat16
};

// `shape`: (experts, in_features, out_features).
Mx random_codes(at::IntArrayRef shape) {
  Mx out;
  out.blocks = at::randint(0, 256, {shape[0], shape[2], shape[1] / 32, 16}, at::kByte);
  out.scales = at::randint(119, 124, {shape[0], shape[2], shape[1] / 32}, at::kByte);
  const at::Tensor low = out.blocks.bitwise_and(15), high = out.blocks.bitwise_right_shift(4);
  const at::Tensor codes = at::stack({low, high}, -1).flatten(-2).to(at::kLong);  // (experts, out, groups, 32)
  const at::Tensor table = at::tensor(at::ArrayRef<float>(kValues));
  const at::Tensor size = table.index({codes.bitwise_and(7)});
  const at::Tensor signs = 1 - 2 * codes.bitwise_right_shift(3).to(at::kFloat);
  const at::Tensor scale = at::exp2(out.scales.to(at::kFloat) - 127).unsqueeze(-1);
  out.dense = (size * signs * scale).flatten(-2).transpose(1, 2).to(at::kBFloat16).contiguous();
  return out;
}

// The fixture with other experts: packed, and dense.
void write_both(const std::filesystem::path& packed, const std::filesystem::path& dense) {
  const auto source = tests::data("families/gpt-oss");
  std::vector<testing::TestTensor> one, other;
  for (const files::StoredTensor& stored : files::open_checkpoint(source / "model.safetensors").tensors) {
    const at::Tensor tensor = tests::read_tensor(source / "model.safetensors", stored.name);
    if (!is_stack(stored.name)) {
      one.push_back(tests::to_stored(stored.name, tensor));
      other.push_back(tests::to_stored(stored.name, tensor));
      continue;
    }
    const Mx experts = random_codes(stored.shape);
    one.push_back(tests::to_stored(stored.name + "_blocks", experts.blocks));
    one.push_back(tests::to_stored(stored.name + "_scales", experts.scales));
    other.push_back(tests::to_stored(stored.name, experts.dense));
  }
  auto config = testing::ordered_json::parse(testing::read_text(source / "config.json"));
  testing::write_checkpoint(dense, other, config);
  config["quantization_config"] = {{"quant_method", "mxfp4"}};
  testing::write_checkpoint(packed, one, config);
}

at::Tensor logits(const std::filesystem::path& directory) {
  const c10::InferenceMode guard;
  const at::Tensor ids = at::arange(60, at::kLong).mul(37).remainder(300).view({2, 30});
  return load_low_bit(directory, {.dtype = DtypePolicy::float32()}).module().forward(ids);
}

TEST_CASE("experts in MXFP4 run from their codes, and a conversion keeps these", "[families][mxfp4]") {
  at::manual_seed(5);
  const tests::Scratch scratch;
  write_both(scratch / "packed", scratch / "dense");
  const at::Tensor wanted = logits(scratch / "dense");
  const auto difference = [&](const at::Tensor& found) {
    return ((found - wanted).abs().max() / wanted.abs().max()).item<double>();
  };
  CHECK(difference(logits(scratch / "packed")) < 1e-5);
  convert::quantize(scratch / "packed", scratch / "converted", {.keep_codes = true});
  CHECK(difference(logits(scratch / "converted")) < 1e-5);
}

TEST_CASE("experts in MXFP4 are not written dense, which would turn them", "[families][mxfp4]") {
  const tests::Scratch scratch;
  write_both(scratch / "packed", scratch / "dense");
  CHECK_THROWS_WITH(convert::dequantize(scratch / "packed", scratch / "back"),
                    Catch::Contains("column by column; turning them is not supported"));
  CHECK_THROWS_WITH(
      convert::quantize(scratch / "packed", scratch / "again", {.scheme = "sym_int4", .requantize = true}),
      Catch::Contains("column by column; turning them is not supported"));
}

}  // namespace
}  // namespace halfbyte
