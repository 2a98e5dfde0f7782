// The lists of parts that schemes have: what each scheme's formula needs is there, in the order in which it is hashed.
#include <halfbyte/scheme.h>

#include <algorithm>
#include <set>

#include "tests/catch.h"

namespace halfbyte {

TEST_CASE("parts: every scheme lists what its weights are made of", "[quant][parts]") {
  for (const Scheme& scheme : schemes()) {
    INFO(scheme.name);
    CHECK(std::ranges::is_sorted(scheme.parts, std::ranges::less(), &PartRule::part));
    std::set<std::string_view> suffixes;
    for (const PartRule& rule : scheme.parts) CHECK(suffixes.insert(rule.suffix).second);
    REQUIRE(scheme.parts.size() >= 2);
    CHECK(scheme.parts[0].part == Part::kCodes);
    CHECK(scheme.parts[1].part == Part::kScale);
    CHECK(has_part(scheme, Part::kZeroPoint) == (scheme.decode == Decode::kZeroPoint));
    CHECK(has_part(scheme, Part::kOffset) == (scheme.decode == Decode::kOffset));
    CHECK((scheme.codebook != nullptr) == (scheme.decode == Decode::kCodebook));
    CHECK(has_part(scheme, Part::kRowScale) == has_row_scales(scheme));
    CHECK(has_part(scheme, Part::kNestedScale) == (has_scale_dtype(scheme, Dtype::kUint8) && !has_row_scales(scheme)));
    CHECK(has_part(scheme, Part::kNestedCodebook) == has_part(scheme, Part::kNestedScale));
    REQUIRE_FALSE(scheme.scale_dtypes.empty());
  }
}

TEST_CASE("parts: shapes", "[quant][parts]") {
  struct Case {
    PartShape shape;
    std::vector<std::int64_t> wanted;
    std::int64_t rows_a_unit;
  };
  const PackedDims dims{.bits = 4, .rows = 18, .columns = 80, .group_size = 16, .rank = 3, .scale_bits = 6};
  const Case cases[] = {
      {PartShape::kWords, {18, 10}, 1},    {PartShape::kBytes, {720, 1}, 1},
      {PartShape::kGroups, {18, 5}, 1},    {PartShape::kFlatGroups, {90}, 1},
      {PartShape::kRank, {3}, 0},          {PartShape::kZeroPointWords, {3, 5}, 8},
      {PartShape::kNestedBlocks, {1}, 0},  {PartShape::kColumns, {80}, 0},
      {PartShape::kLevels, {16}, 0},       {PartShape::kNestedLevels, {256}, 0},
      {PartShape::kText, {kAnyLength}, 0}, {PartShape::kRows, {18}, 1},
      {PartShape::kScaleBits, {18, 4}, 1},
  };
  for (const auto& [shape, wanted, rows] : cases) {
    INFO(static_cast<int>(shape));
    CHECK(shape_of(shape, dims) == wanted);
    CHECK(rows_a_unit(shape) == rows);
  }
  CHECK(shape_of(PartShape::kWords, {.bits = 8, .rows = 2, .columns = 9, .group_size = 9}) ==
        std::vector<std::int64_t>{2, 3});
  CHECK(shape_of(PartShape::kNestedBlocks, {.bits = 4, .rows = 257, .columns = 64, .group_size = 64}) ==
        std::vector<std::int64_t>{2});
}

TEST_CASE("parts: scales are stored in a dtype that the scheme has", "[quant][parts]") {
  for (const Scheme& scheme : schemes()) {
    INFO(scheme.name);
    for (const Dtype weights : {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16})
      CHECK(has_scale_dtype(scheme, scale_dtype_for(scheme, weights)));
  }
  CHECK(scale_dtype_for(scheme(SchemeId::kSymInt4), Dtype::kFloat32) == Dtype::kFloat16);
  CHECK(scale_dtype_for(scheme(SchemeId::kSymInt4), Dtype::kBfloat16) == Dtype::kBfloat16);
  CHECK(scale_dtype_for(scheme(SchemeId::kNf4), Dtype::kBfloat16) == Dtype::kFloat32);
}

}  // namespace halfbyte
