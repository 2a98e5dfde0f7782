// The largest numbers of each dtype: what is written can be read, and comes back finite.
#include <cmath>
#include <limits>

#include <halfbyte/convert.h>

#include "loader/files/checkpoint.h"
#include "loader/files/verify.h"
#include "tests/loader/files/methods/peer.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

constexpr std::int64_t kColumns = 64;

float largest(Dtype dtype) {
  if (dtype == Dtype::kFloat16) return 65504.0F;
  return dtype == Dtype::kBfloat16 ? 0x1.fep127F : std::numeric_limits<float>::max();
}

TestTensor matrix(Dtype dtype, const std::vector<float>& row) {
  std::vector<float> values;
  for (int i = 0; i < 8; ++i) values.insert(values.end(), row.begin(), row.end());
  return {"a.weight", std::string(info(dtype).safetensors), {8, kColumns}, floats(values, dtype)};
}

// Groups that are awkward to code, of magnitudes up to `top`.
std::vector<std::vector<float>> rows_up_to(float top) {
  std::vector<std::vector<float>> out(5, std::vector<float>(kColumns));
  for (std::size_t k = 0; k < kColumns; ++k) {
    const float share = static_cast<float>(k) / static_cast<float>(kColumns - 1);
    out[0][k] = top;
    out[1][k] = k % 2 == 0 ? top : -top;
    out[2][k] = top * (share - 0.5F) * 2.0F;
    out[3][k] = top * (1.0F - 0.1F * share);
    out[4][k] = k == 5 ? -top : share;
  }
  return out;
}

}  // namespace

TEST_CASE("largest: what is quantised is sound, and comes back finite in the dtype it had", "[largest]") {
  for (const Scheme& scheme : schemes()) {
    for (const bool is_nested : {false, true}) {
      if (is_nested && scheme.layout != Layout::kBitsandbytes) continue;
      for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16}) {
        for (const auto& row : rows_up_to(largest(dtype))) {
          INFO(scheme.name << (is_nested ? " nested " : " ") << name(dtype) << " " << row[0] << " " << row[1] << " "
                           << row[5]);
          const Scratch scratch;
          write_checkpoint(scratch / "s", {matrix(dtype, row)}, {{"model_type", "foo"}});
          convert::quantize(scratch / "s", scratch / "q",
                            {.scheme = std::string(scheme.name),
                             .group_size = std::min<std::int64_t>(32, scheme.largest_group),
                             .nested_scales = is_nested,
                             .halfbyte_only = true});
          const files::Checkpoint quantised = files::open_checkpoint(scratch / "q");
          CHECK(files::verify(quantised).findings.empty());
          convert::dequantize(scratch / "q", scratch / "d");
          const files::Checkpoint back = files::open_checkpoint(scratch / "d");
          CHECK(back.find("a.weight")->dtype == dtype);
          for (const float value : values_of(back, "a.weight")) REQUIRE(std::isfinite(value));
          convert::quantize(scratch / "q", scratch / "again", {.group_size = 32, .requantize = true});
        }
      }
    }
  }
}

TEST_CASE("largest: what a scale cannot follow is recorded as the error it is", "[largest]") {
  for (const Scheme& scheme : schemes()) {
    for (const float value : {1e22F, 1e25F, 1e38F}) {
      INFO(scheme.name << " " << value);
      const Scratch scratch;
      std::vector<float> row(kColumns, 0.5F);
      row[7] = value;
      write_checkpoint(scratch / "s", {matrix(Dtype::kFloat32, row)}, {{"model_type", "foo"}});
      convert::quantize(scratch / "s", scratch / "q",
                        {.scheme = std::string(scheme.name),
                         .group_size = std::min<std::int64_t>(64, scheme.largest_group),
                         .halfbyte_only = true});
      const files::Checkpoint opened = files::open_checkpoint(scratch / "q");
      const auto& error = opened.manifest.find("a.weight")->error;
      REQUIRE(error);
      double wanted = 0, squared = 0, squares = 0;
      const std::vector<float> found = values_of(opened, "a.weight");
      for (std::size_t k = 0; k < row.size(); ++k) {
        const double difference = std::abs(static_cast<double>(row[k]) - found[k]);
        wanted = std::max(wanted, difference);
        squared += difference * difference;
        squares += static_cast<double>(row[k]) * row[k];
      }
      CHECK(error->max_abs == Approx(wanted));
      CHECK(error->rel_rmse == Approx(std::sqrt(squared / squares)).margin(1e-4));
    }
  }
}

TEST_CASE("largest: a dtype that was asked for and is narrower still refuses", "[largest]") {
  const Scratch scratch;
  write_checkpoint(scratch / "s", {matrix(Dtype::kBfloat16, std::vector<float>(kColumns, 65536.0F))},
                   {{"model_type", "foo"}});
  convert::quantize(scratch / "s", scratch / "q", {.scheme = "asym_int4", .group_size = 64});
  check_error(ErrorCode::kUnsupported, {"a.weight", "too large for float16"},
              [&] { convert::dequantize(scratch / "q", scratch / "d", {.dtype = Dtype::kFloat16}); });
}
