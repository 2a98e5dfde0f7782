// Round-trip accuracy: convert, load under a policy, and compare the model's predictions with the original's.
// The heart of the suite: one table of scheme x group size x policy, measured values beside the bounds.
#include "tests/catch.h"

#include <fstream>
#include <iterator>

#include <halfbyte/convert.h>
#include <halfbyte/evaluate.h>
#include <halfbyte/load_low_bit.h>

#include "models/tokenizers/tokenizer.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

struct Row {
  const char* scheme;  // null: the original
  std::int64_t group_size;
  quant::Search search;
  const char* policy;
  double measured;  // KL divergence on tests/data/heldout.txt, AVX-512; for the reader
  double bound;
};

using enum quant::Search;
constexpr Row kRows[] = {
    {nullptr, 0, kSquaredError, "float32", 0, 2e-06},
    {nullptr, 0, kSquaredError, "amp:bfloat16", 7e-06, 1.6e-05},
    {nullptr, 0, kSquaredError, "amp:float16", 1.1e-07, 2.2e-06},
    {nullptr, 0, kSquaredError, "half", 4.7e-07, 2.9e-06},
    {nullptr, 0, kSquaredError, "bfloat16", 2.9e-05, 6.1e-05},
    {"sym_int4", 128, kSquaredError, "float32", 0.0061, 0.0064},
    {"sym_int4", 128, kAbsmax, "float32", 0.0071, 0.0075},
    {"sym_int4", 64, kSquaredError, "float32", 0.006, 0.0063},
    {"sym_int4", 64, kSquaredError, "amp:bfloat16", 0.006, 0.0063},
    {"sym_int4", 64, kSquaredError, "amp:float16", 0.006, 0.0063},
    {"sym_int4", 64, kSquaredError, "half", 0.006, 0.0063},
    {"sym_int4", 64, kSquaredError, "bfloat16", 0.0061, 0.0064},
    {"sym_int4", 64, kAbsmax, "float32", 0.0067, 0.0071},
    {"sym_int4", 32, kSquaredError, "float32", 0.0047, 0.0049},
    {"sym_int4", 32, kAbsmax, "float32", 0.0055, 0.0058},
    {"sym_int4", 16, kSquaredError, "float32", 0.0035, 0.0037},
    {"sym_int4", 16, kAbsmax, "float32", 0.004, 0.0042},
    {"sym_int4", 0, kSquaredError, "float32", 0.0081, 0.0085},
    {"sym_int4", 0, kAbsmax, "float32", 0.0092, 0.0096},
    {"sym_int8", 128, kSquaredError, "float32", 2.5e-05, 5.2e-05},
    {"sym_int8", 64, kSquaredError, "float32", 2.3e-05, 4.8e-05},
    {"sym_int8", 64, kSquaredError, "amp:bfloat16", 3.2e-05, 6.6e-05},
    {"sym_int8", 64, kSquaredError, "amp:float16", 2.3e-05, 4.8e-05},
    {"sym_int8", 64, kSquaredError, "half", 2.3e-05, 4.9e-05},
    {"sym_int8", 64, kSquaredError, "bfloat16", 5.4e-05, 0.00011},
    {"sym_int8", 32, kSquaredError, "float32", 1.7e-05, 3.6e-05},
    {"sym_int8", 16, kSquaredError, "float32", 1.2e-05, 2.5e-05},
    {"sym_int8", 0, kSquaredError, "float32", 3.5e-05, 7.1e-05},
};

TokenIds heldout() {
  const auto tokenizer = models::load_tokenizer(tests::data("tiny-llama"));
  std::ifstream in(tests::data("heldout.txt"), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  REQUIRE(text.size() > 10000);
  return tokenizer->encode(text);
}

std::string description(const Row& row) {
  if (!row.scheme) return std::string("original, ") + row.policy;
  return std::string(row.scheme) + " g" + std::to_string(row.group_size) +
         (row.search == kAbsmax ? " absmax, " : ", ") + row.policy;
}

TEST_CASE("round trip: the divergence of every scheme, group size and policy stays in its bound", "[round_trip]") {
  const Model original = load_low_bit(tests::data("tiny-llama"), {.dtype = DtypePolicy::float32()});
  const TokenIds text = heldout();
  tests::Scratch scratch;
  for (const Row& row : kRows) {
    INFO(description(row));
    std::filesystem::path path = tests::data("tiny-llama");
    if (row.scheme) {
      path = scratch / "tiny";
      convert::quantize(tests::data("tiny-llama"), path,
                        {.scheme = row.scheme, .group_size = row.group_size, .search = row.search, .overwrite = true});
    }
    const Model model = load_low_bit(path, {.dtype = DtypePolicy::parse(row.policy)});
    const PerplexityResult result =
        perplexity(model.module(), text, {1}, {.context = 256, .windows = 16}, &original.module());
    UNSCOPED_INFO("measured " << result.divergence->kl_mean);
    if (std::getenv("HALFBYTE_PRINT_ROUND_TRIP")) {
      WARN(description(row) << ": " << result.divergence->kl_mean << " (top-1 " << result.divergence->top1_agreement
                            << ")");
    }
    CHECK(result.divergence->kl_mean <= row.bound);
  }
}

}  // namespace
}  // namespace halfbyte
