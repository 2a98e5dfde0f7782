// gpt-oss as published: experts in MXFP4, which lie row by row, run from their codes as the same values do that lie
// column by column.
#include "tests/catch.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "convert/gguf/export.h"
#include "loader/files/checkpoint.h"
#include "loader/files/difference.h"
#include "loader/files/verify.h"
#include "tests/models/logits_of.h"
#include "tests/models/reference.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using tests::logits_of;

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

std::filesystem::path quantized(const std::filesystem::path& source, const convert::QuantizeOptions& options,
                                const std::filesystem::path& target) {
  convert::quantize(source, target, options);
  return target;
}

// The largest of all values; infinite where a tensor is missing or of another shape.
double difference_from(const std::filesystem::path& wanted, const std::filesystem::path& found) {
  const files::Checkpoint a = files::open_checkpoint(found), b = files::open_checkpoint(wanted);
  double out = 0;
  for (const files::Comparison& row : files::compare(a, b, [](std::uint64_t) {})) {
    const bool is_compared = row.match == files::Match::kSameBytes || row.match == files::Match::kMeasured;
    out = std::max(out, is_compared ? row.max_abs : std::numeric_limits<double>::infinity());
  }
  return out;
}

TEST_CASE("experts in MXFP4 run from their codes, and a conversion keeps these", "[families][mxfp4]") {
  at::manual_seed(5);
  const tests::Scratch scratch;
  write_both(scratch / "packed", scratch / "dense");
  const at::Tensor wanted = logits_of(scratch / "dense");
  const auto difference = [&](const at::Tensor& found) {
    return ((found - wanted).abs().max() / wanted.abs().max()).item<double>();
  };
  CHECK(difference(logits_of(scratch / "packed")) < 1e-5);
  convert::quantize(scratch / "packed", scratch / "converted", {.keep_codes = true});
  CHECK(difference(logits_of(scratch / "converted")) < 1e-5);
}

TEST_CASE("experts in MXFP4 are dequantised to what they stand for, column by column", "[families][mxfp4]") {
  const tests::Scratch scratch;
  write_both(scratch / "packed", scratch / "dense");
  convert::dequantize(scratch / "packed", scratch / "back", {.assume_original = Dtype::kBfloat16});
  CHECK(difference_from(scratch / "dense", scratch / "back") == 0);
  const at::Tensor wanted = logits_of(scratch / "dense");
  CHECK(at::equal(logits_of(scratch / "back"), wanted));
}

TEST_CASE("experts in MXFP4 are quantised again, or written dense beside what is", "[families][mxfp4]") {
  const tests::Scratch scratch;
  write_both(scratch / "packed", scratch / "dense");
  const convert::QuantizeOptions options{.scheme = "sym_int8",
                                         .group_size = 32,
                                         .halfbyte_only = true,
                                         .assume_original = Dtype::kBfloat16,
                                         .requantize = true};
  convert::quantize(scratch / "packed", scratch / "again", options);
  convert::quantize(scratch / "dense", scratch / "once", options);
  CHECK(difference_from(scratch / "once", scratch / "again") == 0);
  convert::QuantizeOptions kept = options;
  kept.keep = {"*.experts.*"};
  convert::quantize(scratch / "packed", scratch / "kept", kept);
  REQUIRE(files::open_checkpoint(scratch / "kept").find("model.layers.0.mlp.experts.gate_up_proj"));
  CHECK(files::open_checkpoint(scratch / "kept").find("model.layers.0.mlp.experts.gate_up_proj")->shape ==
        files::open_checkpoint(scratch / "dense").find("model.layers.0.mlp.experts.gate_up_proj")->shape);
  CHECK(at::equal(logits_of(scratch / "kept"), logits_of(quantized(scratch / "dense", kept, scratch / "kept_once"))));
}

TEST_CASE("the rest of a checkpoint is quantised beside experts that stay in MXFP4", "[families][mxfp4]") {
  const tests::Scratch scratch;
  write_both(scratch / "packed", scratch / "dense");
  convert::QuantizeOptions options{.scheme = "sym_int8", .group_size = 32, .halfbyte_only = true};
  options.keep_packed = true;
  const convert::QuantizeSummary summary = convert::quantize(scratch / "packed", scratch / "mixed", options);
  const files::Checkpoint source = files::open_checkpoint(scratch / "packed"),
                          mixed = files::open_checkpoint(scratch / "mixed");
  std::int64_t experts = 0, others = 0;
  for (const files::TensorRecord& record : mixed.manifest.tensors) {
    if (!record.scheme) continue;
    record.scheme->id == SchemeId::kFp4E2m1 ? ++experts : ++others;
  }
  CHECK(experts == 4);
  CHECK(others == summary.quantized_tensors);
  CHECK(others >= 8);
  for (const files::Comparison& row : files::compare(mixed, source, [](std::uint64_t) {})) {
    INFO(row.tensor);
    if (is_stack(row.tensor)) CHECK(row.match == files::Match::kSameBytes);
  }
  const files::VerifyReport report = files::verify(mixed);
  CHECK(report.findings.empty());
  CHECK(report.tensors_unhashed == 0);
  options.keep_packed = false;
  options.keep = {"*.experts.*"};
  const at::Tensor wanted = logits_of(quantized(scratch / "dense", options, scratch / "other"));
  CHECK(((logits_of(scratch / "mixed") - wanted).abs().max() / wanted.abs().max()).item<double>() < 1e-5);
}

TEST_CASE("experts in MXFP4 go to GGUF and come back with their codes", "[families][mxfp4][gguf]") {
  const tests::Scratch scratch;
  write_both(scratch / "packed", scratch / "dense");
  const convert::GgufExportSummary summary = convert::export_gguf(scratch / "packed", scratch / "m.gguf");
  CHECK(summary.exact_tensors == 6);  // of each of two layers gates, what they multiply, and the way back
  CHECK(summary.requantized_tensors == 0);
  const files::Checkpoint found = files::open_checkpoint(scratch / "m.gguf");
  CHECK(found.manifest.find("model.layers.0.mlp.experts.gate_up_proj")->scheme == &scheme(SchemeId::kFp4E2m1));
  CHECK(difference_from(scratch / "packed", scratch / "m.gguf") == 0);
  CHECK(at::equal(logits_of(scratch / "m.gguf"), logits_of(scratch / "packed")));
  convert::export_gguf(scratch / "m.gguf", scratch / "again.gguf");
  const bool is_same = testing::read_text(scratch / "m.gguf") == testing::read_text(scratch / "again.gguf");
  CHECK(is_same);
}

TEST_CASE("experts that a family stores column by column come back so from GGUF", "[families][gguf]") {
  const tests::Scratch scratch;
  const auto source = tests::data("families/gpt-oss");
  convert::export_gguf(source, scratch / "m.gguf");
  CHECK(difference_from(source, scratch / "m.gguf") == 0);
  convert::dequantize(scratch / "m.gguf", scratch / "back", {});
  CHECK(difference_from(source, scratch / "back") == 0);
  CHECK(files::open_checkpoint(scratch / "back").find("model.layers.0.mlp.experts.down_proj")->shape ==
        files::open_checkpoint(source).find("model.layers.0.mlp.experts.down_proj")->shape);
  const convert::QuantizeOptions options{.scheme = "sym_int8", .group_size = 32, .halfbyte_only = true};
  convert::quantize(scratch / "m.gguf", scratch / "one", options);
  convert::quantize(source, scratch / "other", options);
  CHECK(difference_from(scratch / "other", scratch / "one") == 0);
}

TEST_CASE("keeping what is packed is refused where nothing is, and beside quantising it again", "[families][mxfp4]") {
  const tests::Scratch scratch;
  write_both(scratch / "packed", scratch / "dense");
  convert::QuantizeOptions options{.scheme = "sym_int8"};
  options.keep_packed = true;
  CHECK_THROWS_WITH(convert::quantize(scratch / "dense", scratch / "out", options), Catch::Contains("is packed"));
  options.requantize = true;
  CHECK_THROWS_WITH(convert::quantize(scratch / "packed", scratch / "out", options), Catch::Contains("exclude"));
}

}  // namespace
}  // namespace halfbyte
