// load_state: names to tensors for any architecture, mapped, packed or dequantised, under every policy.
#include "tests/catch.h"

#include <halfbyte/convert.h>
#include <halfbyte/load_state.h>

#include "quant/operators/torch_dtype.h"
#include "tests/loader/files/packed_checkpoint.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using testing::check_error;
using testing::Scratch;

const char* const kEveryPolicy[] = {"amp:bfloat16", "amp:float16", "half", "bfloat16", "float32", "original"};

TEST_CASE("load_state: a checkpoint of no known family gives its tensors as they lie in the file", "[load_state]") {
  Scratch scratch;
  testing::write_packed_checkpoint(scratch / "c");
  const State state = load_state(scratch / "c");
  REQUIRE(state.size() == 2);
  const StateTensor& packed = state.at("a.weight");
  REQUIRE(packed.is_low_bit());
  CHECK(packed.recorded == Dtype::kBfloat16);
  CHECK(packed.low_bit().description() == "sym_int4 g16");
  CHECK(packed.low_bit().codes.sizes() == at::IntArrayRef({2, 4}));
  const at::Tensor codes = at::arange(-8, 8, at::kFloat);
  const at::Tensor wanted = at::stack({at::cat({codes, codes * 0.5}), at::zeros({32})});
  CHECK(packed.dequantize(at::kFloat).equal(wanted));
  CHECK(packed.dequantize(at::kDouble).equal(wanted.to(at::kDouble)));
  CHECK(packed.dequantize().scalar_type() == at::kBFloat16);
  CHECK(state.at("n.weight").dense().equal(at::tensor({1.0F, 2.0F, 3.0F})));
  CHECK_FALSE(state.contains("b"));
}

// A packed matrix whose columns are grouped in an order of their own: every second one.
void write_reordered(const std::filesystem::path& directory) {
  auto tensors = testing::packed_tensors();
  std::vector<std::int32_t> groups;
  for (int k = 0; k < 32; ++k) groups.push_back(k % 2);
  tensors.push_back({"a.weight_g_idx",
                     "I32",
                     {32},
                     std::string(reinterpret_cast<const char*>(groups.data()), groups.size() * sizeof groups[0])});
  const nlohmann::ordered_json weights{
      {"num_bits", 4}, {"symmetric", true}, {"strategy", "group"}, {"group_size", 16}, {"actorder", "group"}};
  testing::write_checkpoint(directory, tensors,
                            {{"quantization_config",
                              {{"quant_method", "compressed-tensors"},
                               {"format", "pack-quantized"},
                               {"config_groups", {{"group_0", {{"weights", weights}}}}}}}});
}

TEST_CASE("load_state: columns in an order of their own multiply as if they were in place", "[load_state]") {
  Scratch scratch;
  write_reordered(scratch / "c");
  convert::repack(scratch / "c", scratch / "m");
  for (const char* name : {"c", "m"}) {
    INFO(name);
    const State state = load_state(scratch / name);
    const LowBitTensor& weight = state.at("a.weight").low_bit();
    REQUIRE(weight.column_order);
    const at::Tensor codes = at::arange(-8, 8, at::kFloat).repeat({2}), scales = at::tensor({1.0F, 0.5F}).repeat({16});
    const at::Tensor dense = at::stack({codes * scales, at::zeros({32})});
    CHECK(weight.dequantize(at::kFloat).equal(dense));
    CHECK(load_state(scratch / name, {.dequantize = true}).at("a.weight").dense().to(at::kFloat).equal(dense));
    const at::Tensor input = at::randn({3, 2, 32}).requires_grad_();
    const at::Tensor product = weight.multiply(input);
    CHECK(product.allclose(at::matmul(input, dense.t()), 1e-5, 1e-5));
    product.sum().backward();
    CHECK(input.grad().allclose(dense.sum(0).expand({3, 2, 32}), 1e-5, 1e-5));
    CHECK(weight.to(at::kCPU).multiply(input).equal(product));
    check_error(ErrorCode::kInvalidArgument, {"input"}, [&] { weight.multiply(at::randn({3, 31})); });
  }
}

TEST_CASE("load_state: asking for what is not there, or for the other kind, is an error in words", "[load_state]") {
  Scratch scratch;
  testing::write_packed_checkpoint(scratch / "c");
  const State state = load_state(scratch / "c");
  check_error(ErrorCode::kNotFound, {"\"a.wieght\"", "2"}, [&] { state.at("a.wieght"); });
  check_error(ErrorCode::kInvalidArgument, {"sym_int4", "dequantize"}, [&] { state.at("a.weight").dense(); });
  check_error(ErrorCode::kInvalidArgument, {"Float", "not packed"}, [&] { state.at("n.weight").low_bit(); });
}

TEST_CASE("load_state: every tensor takes its policy's dtype, and the report lists it", "[load_state]") {
  Scratch scratch;
  testing::write_packed_checkpoint(scratch / "c");
  for (const char* text : kEveryPolicy) {
    INFO(text);
    const DtypePolicy policy = DtypePolicy::parse(text);
    const State state = load_state(scratch / "c", {.dtype = policy, .dequantize = true});
    // n.weight: one dimension, so no operand of a product.
    const Dtype norm = policy.is_amp() || policy.is_original() ? Dtype::kFloat32 : *policy.operand();
    const Dtype linear = policy.operand().value_or(Dtype::kBfloat16);
    CHECK(state.at("n.weight").dense().scalar_type() == *to_torch(norm));
    CHECK(state.at("a.weight").dense().scalar_type() == *to_torch(linear));
    REQUIRE(state.report.tensors.size() == 2);
    CHECK(state.report.policy == policy.name());
    CHECK(state.report.tensors[0].note == "dequantised from sym_int4 g16");
    CHECK(state.report.tensors[0].loaded == name(linear));
    CHECK(state.report.tensors[1].placement == (norm == Dtype::kFloat32 ? Placement::kMapped : Placement::kCast));
    const State kept = load_state(scratch / "c", {.dtype = policy, .keep_float32 = {"n"}});
    CHECK(kept.at("n.weight").dense().scalar_type() == at::kFloat);
    CHECK(kept.at("a.weight").is_low_bit());
  }
}

TEST_CASE("load_state: tensors are the mapping, outlive the state, and a write stays in the process", "[load_state]") {
  Scratch scratch;
  testing::write_packed_checkpoint(scratch / "c");
  at::Tensor norm = load_state(scratch / "c").at("n.weight").dense();
  norm.fill_(5);
  CHECK(norm.sum().item<float>() == 15);
  const State state = load_state(scratch / "c");
  CHECK(state.at("n.weight").dense().sum().item<float>() == 6);
  CHECK(state.report.bytes_with(Placement::kCast) == 0);
}

TEST_CASE("load_state: tied names give one storage, derived buffers are named", "[load_state]") {
  Scratch scratch;
  testing::write_checkpoint(scratch / "c", testing::llama_tensors(false), testing::llama_config(true));
  for (const char* text : kEveryPolicy) {
    const State state = load_state(scratch / "c", {.dtype = DtypePolicy::parse(text)});
    CHECK(state.size() == 12);
    CHECK(state.at("lm_head.weight").dense().is_same(state.at("model.embed_tokens.weight").dense()));
    CHECK(state.at("lm_head.weight").tied_to == "model.embed_tokens.weight");
    CHECK(state.at("model.embed_tokens.weight").tied_to.empty());
    CHECK_THAT(state.report.notes.back(), Catch::Contains("inv_freq is not stored") && Catch::Contains("rope"));
  }
}

TEST_CASE("load_state: every scheme that the converter writes comes back", "[load_state]") {
  Scratch scratch;
  const State original = load_state(tests::data("tiny-llama"));
  for (const Scheme& scheme : schemes()) {
    const std::string name_of_scheme(scheme.name);
    convert::quantize(tests::data("tiny-llama"), scratch / name_of_scheme,
                      {.scheme = name_of_scheme, .halfbyte_only = true});
    const State state = load_state(scratch / name_of_scheme);
    REQUIRE(state.size() == original.size());
    std::size_t packed = 0;
    for (const auto& [name, tensor] : state) {
      INFO(scheme.name << " " << name);
      packed += tensor.is_low_bit();
      const at::Tensor wanted = original.at(name).dense().to(at::kFloat);
      const at::Tensor difference = tensor.dequantize(at::kFloat) - wanted;
      const double error = (difference.norm() / wanted.norm()).item<double>();
      CHECK(error <= (!tensor.is_low_bit() ? 0 : scheme.bits == 8 ? 0.01 : 0.15));
      CHECK(tensor.dequantize().scalar_type() == at::kBFloat16);
    }
    CHECK(packed == 28);
  }
}

void flip_byte(const std::filesystem::path& path, std::uint64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-static_cast<std::streamoff>(from_end), std::ios::end);
  const int byte = file.get();
  file.seekp(-static_cast<std::streamoff>(from_end), std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
}

TEST_CASE("verification on load names the tensor whose bytes changed, and only when it is asked for",
          "[verification]") {
  Scratch scratch;
  testing::write_packed_checkpoint(scratch / "c");
  const StateOptions verified{.verify = Verification::kHashes};
  CHECK(load_state(scratch / "c", verified).report.verified_tensors == 2);
  CHECK(load_state(scratch / "c").report.verified_tensors == 0);
  flip_byte(scratch / "c" / "model.safetensors", 1);  // n.weight is the last tensor
  CHECK_NOTHROW(load_state(scratch / "c"));
  check_error(ErrorCode::kCorrupt, {"\"n.weight\"", "not those that were written", "copy the checkpoint again"},
              [&] { load_state(scratch / "c", verified); });
}

TEST_CASE("verification covers every part of a packed tensor", "[verification]") {
  for (const std::uint64_t from_end : {12 + 16 + 8 + 32, 12 + 16 + 8, 12 + 1}) {  // codes, scales, shape
    Scratch scratch;
    testing::write_packed_checkpoint(scratch / "c");
    flip_byte(scratch / "c" / "model.safetensors", from_end);
    check_error(ErrorCode::kCorrupt, {"\"a.weight\""},
                [&] { load_state(scratch / "c", {.verify = Verification::kHashes}); });
  }
}

TEST_CASE("verification counts tensors that have no hash on record", "[verification]") {
  const State state = load_state(tests::data("tiny-llama"), {.verify = Verification::kHashes});
  CHECK(state.report.verified_tensors == 0);
  CHECK(state.report.unhashed_tensors == 39);
}

}  // namespace
}  // namespace halfbyte
