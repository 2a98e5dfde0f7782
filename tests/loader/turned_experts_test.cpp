// Families whose experts are stored column by column: packed as rows, brought back as columns.
#include "tests/catch.h"

#include <algorithm>

#include <ATen/ATen.h>

#include <halfbyte/causal_lm.h>
#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "loader/files/difference.h"
#include "loader/files/verify.h"
#include "models/architectures/architecture.h"
#include "tests/loader/files/scratch.h"
#include "tests/models/logits_of.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

using tests::logits_of;

constexpr const char* kFamilies[] = {"gpt-oss", "llama4"};

std::int64_t packed_stacks(const files::Checkpoint& checkpoint) {
  return std::ranges::count_if(checkpoint.manifest.tensors, [](const files::TensorRecord& record) {
    return record.scheme && record.shape.size() == 3;
  });
}

TEST_CASE("experts stored column by column are quantised as rows", "[families][turned]") {
  for (const char* family : kFamilies) {
    for (const char* scheme : {"sym_int8", "asym_int4", "hb4"}) {
      INFO(family << ", " << scheme);
      const testing::Scratch scratch;
      const auto source = tests::data("families") / family, packed = scratch / "packed", back = scratch / "back";
      convert::quantize(source, packed, {.scheme = scheme, .group_size = 32, .halfbyte_only = true});
      const files::Checkpoint original = files::open_checkpoint(source), made = files::open_checkpoint(packed);
      CHECK(packed_stacks(made) >= 2);
      const files::VerifyReport report = files::verify(made, &original);
      CHECK(report.findings.empty());
      const double most = std::string_view(scheme) == "sym_int8" ? 0.01 : 0.12;
      for (const auto& difference : report.differences) {
        INFO(difference.tensor << " " << difference.rel_rmse);
        CHECK(difference.rel_rmse <= most);
      }
      convert::dequantize(packed, back, {.dtype = Dtype::kFloat32});
      const files::Checkpoint dense = files::open_checkpoint(back);
      for (const files::StoredTensor& tensor : original.tensors) {
        REQUIRE(dense.find(tensor.name));
        CHECK(dense.find(tensor.name)->shape == tensor.shape);
      }
      // The same model: from codes, and from what they stand for.
      const at::Tensor wanted = logits_of(back);
      const double difference = ((logits_of(packed) - wanted).abs().max() / wanted.abs().max()).item<double>();
      CHECK(difference < 1e-4);
    }
  }
}

TEST_CASE("experts stored column by column that are kept stay columns", "[families][turned]") {
  for (const char* family : kFamilies) {
    INFO(family);
    const testing::Scratch scratch;
    const auto source = tests::data("families") / family, target = scratch / "kept";
    convert::quantize(source, target, {.group_size = 32, .keep = {"*.experts.*"}});
    const files::Checkpoint original = files::open_checkpoint(source), made = files::open_checkpoint(target);
    CHECK(packed_stacks(made) == 0);
    for (const files::Comparison& row : files::compare(made, original, [](std::uint64_t) {})) {
      if (row.tensor.find(".experts.") != std::string::npos) CHECK(row.match == files::Match::kSameBytes);
    }
    CHECK(files::verify(made, &original).findings.empty());
  }
}

}  // namespace
}  // namespace halfbyte
