#include "convert/calibrate/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <halfbyte/scheme.h>

#include "tests/catch.h"

using namespace halfbyte;
using namespace halfbyte::convert;
using namespace halfbyte::convert::calibrate;

namespace {

constexpr std::int64_t kRows = 11, kColumns = 192;

std::vector<float> weights() {
  std::vector<float> out(static_cast<std::size_t>(kRows * kColumns));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = std::sin(static_cast<float>(i) * 0.37f) * (1.0f + static_cast<float>(i % 7));
  return out;
}

PackedMatrix chosen(const PlannedTensor& planned, std::int64_t first, std::int64_t count) {
  const std::vector<float> all = weights();
  PackedMatrix out(planned, {count, kColumns});
  out.quantize(
      std::span(all).subspan(static_cast<std::size_t>(first * kColumns), static_cast<std::size_t>(count * kColumns)),
      {}, quant::Search{}, 1);
  return out;
}

}  // namespace

TEST_CASE("packed matrix: blocks of rows put together are the whole", "[calibrate][parts]") {
  for (const Scheme& scheme : schemes()) {
    PlannedTensor planned{};
    planned.scheme = &scheme;
    planned.group_size = std::min<std::int64_t>(32, scheme.largest_group);
    planned.scale_dtype = scheme.scale_dtypes.front();
    INFO(scheme.name);
    const PackedMatrix whole = chosen(planned, 0, kRows);
    const PackedLayout layout(planned, whole.size());
    std::vector<std::byte> bytes(layout.size_bytes);
    for (std::int64_t first = 0; first < kRows; first += 4) {  // and three at the end
      const PackedMatrix block = chosen(planned, first, std::min<std::int64_t>(4, kRows - first));
      layout.put(PackedLayout(planned, block.size()), block.bytes(),
                 static_cast<std::uint64_t>(first * (kColumns / planned.group_size)), bytes);
    }
    CHECK(std::ranges::equal(bytes, whole.bytes()));
  }
}
