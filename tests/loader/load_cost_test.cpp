// What `inspect --policy` foretells is what load_low_bit reports.
#include "loader/load_cost.h"

#include "tests/catch.h"

#include <map>

#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "tests/places.h"

namespace halfbyte {
namespace {

using Lines = std::map<std::string, LoadedTensor>;

Lines by_name(const LoadReport& report) {
  Lines out;
  for (const LoadedTensor& tensor : report.tensors) out[tensor.name] = tensor;
  return out;
}

void check_foretold(const std::filesystem::path& path, const LoadOptions& options) {
  INFO(path << " " << options.dtype.name());
  const auto cost = files::load_cost(files::open_checkpoint(path), options);
  const Model model = load_low_bit(path, options);
  const Lines foretold = by_name(cost.report), loaded = by_name(model.report());
  CHECK(foretold.size() == cost.report.tensors.size());
  REQUIRE(foretold.size() == loaded.size());
  for (const auto& [name, tensor] : loaded) {
    INFO(name);
    REQUIRE(foretold.contains(name));
    const LoadedTensor& line = foretold.at(name);
    // Of a tie, whichever name is asked for first holds the bytes.
    const bool is_tied =
        line.note.starts_with("tied") || tensor.note.starts_with("tied") || name == "model.embed_tokens.weight";
    CHECK(line.loaded == tensor.loaded);
    CHECK(line.recorded == tensor.recorded);
    CHECK(line.is_buffer == tensor.is_buffer);
    CHECK(line.operand == tensor.operand);
    if (is_tied) continue;
    CHECK(line.bytes == tensor.bytes);
    CHECK(halfbyte::name(line.placement) == std::string(halfbyte::name(tensor.placement)));
  }
  for (const Placement placement : {Placement::kMapped, Placement::kCast, Placement::kCopied, Placement::kDerived})
    CHECK(cost.report.bytes_with(placement) == model.report().bytes_with(placement));
}

void check_all_policies(const std::filesystem::path& path) {
  for (const char* policy : {"amp:bfloat16", "amp:float16", "half", "bfloat16", "float32", "original"}) {
    const DtypePolicy dtype = DtypePolicy::parse(policy);
    check_foretold(path, {.dtype = dtype});
    check_foretold(path, {.dtype = dtype, .keep_float32 = {"*norm*", "lm_head", "*inv_freq"}});
    check_foretold(path,
                   {.dtype = dtype,
                    .overrides = {{"model.layers.?.mlp", DtypePolicy::half()}, {"*embed*", DtypePolicy::bfloat16()}}});
  }
}

TEST_CASE("a policy's cost is foretold to the byte", "[policy]") {
  tests::Scratch scratch;
  const auto source = tests::data("tiny-llama");
  convert::quantize(source, scratch / "quantized");
  convert::quantize(source, scratch / "head", {.scheme_for = {{"lm_head", "sym_int8"}}});
  convert::quantize(source, scratch / "embedding", {.halfbyte_only = true, .embedding = "asym_int4"});
  for (const auto& path : {source, scratch / "quantized", scratch / "head", scratch / "embedding"})
    check_all_policies(path);
}

TEST_CASE("a tied model's cost is foretold to the byte", "[policy]") {
  const auto directory = tests::shared("fixtures/families/llama31-rope");
  if (!directory) HALFBYTE_SKIP("../shared/fixtures/families is not here");
  tests::Scratch scratch;
  convert::quantize(*directory, scratch / "tied");
  convert::quantize(*directory, scratch / "packed", {.halfbyte_only = true, .embedding = "sym_int8"});
  for (const auto& path : {*directory, scratch / "tied", scratch / "packed"}) check_all_policies(path);
}

}  // namespace
}  // namespace halfbyte
