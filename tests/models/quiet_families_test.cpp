// Families whose random weights hardly move their logits, because what the embedding gives is far larger than what
// layers add to it: with an embedding of a quarter, which norms take out again, layers are heard.
#include "tests/catch.h"

#include <ATen/ATen.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "tests/models/logits_of.h"
#include "tests/models/reference.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using tests::logits_of;

struct Quiet {
  const char* name;
  double int8, int4;  // largest difference of a logit, relative to the largest: bounds of about twice what was measured
};
constexpr Quiet kQuiet[] = {{"gemma2", 0.01, 0.15},       {"gemma3", 0.018, 0.32},   {"gemma4", 0.09, 0.62},
                            {"gemma4-moe", 0.24, 0.8},    {"gemma4-ple", 0.18, 1.2}, {"granite", 0.002, 0.04},
                            {"granitemoe", 0.0016, 0.036}};

void write_louder(const std::filesystem::path& source, const std::filesystem::path& target) {
  const auto file = source / "model.safetensors";
  std::vector<testing::TestTensor> tensors;
  for (const files::StoredTensor& stored : files::open_checkpoint(file).tensors) {
    at::Tensor tensor = tests::read_tensor(file, stored.name);
    if (stored.name == "model.embed_tokens.weight") tensor = tensor.mul(0.25);
    tensors.push_back(tests::to_stored(stored.name, tensor));
  }
  testing::write_checkpoint(target, tensors, testing::ordered_json::parse(testing::read_text(source / "config.json")));
}

TEST_CASE("families: layers are heard, quantised and loaded again, where the embedding is small", "[families]") {
  for (const Quiet& family : kQuiet) {
    const tests::Scratch scratch;
    const auto source = scratch / "source";
    write_louder(tests::data("families") / family.name, source);
    const at::Tensor wanted = logits_of(source);
    const auto moved = [&](const char* scheme) {
      convert::quantize(source, scratch / scheme, {.scheme = scheme, .group_size = 32, .halfbyte_only = true});
      return ((logits_of(scratch / scheme) - wanted).abs().max() / wanted.abs().max()).item<double>();
    };
    const double int8 = moved("sym_int8"), int4 = moved("sym_int4");
    INFO(family.name << ": sym_int8 " << int8 << ", sym_int4 " << int4);
    CHECK(int8 > 1e-4);  // else this test would hear nothing
    CHECK(int8 <= family.int8);
    CHECK(int4 > 2 * int8);
    CHECK(int4 <= family.int4);
  }
}

}  // namespace
}  // namespace halfbyte
