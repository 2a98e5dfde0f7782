// What counts as equal, what is measured and what cannot be; and the sums against plain ones.
#include "loader/files/difference.h"

#include <cmath>
#include <limits>
#include <map>

#include "loader/files/parallel.h"
#include "tests/loader/files/packed_checkpoint.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::Match;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::map<std::string, files::Comparison> compare(const fs::path& a, const fs::path& b) {
  // The rows point into both: they outlive this function.
  static std::vector<std::unique_ptr<files::Checkpoint>> opened;
  opened.push_back(std::make_unique<files::Checkpoint>(files::open_checkpoint(a)));
  opened.push_back(std::make_unique<files::Checkpoint>(files::open_checkpoint(b)));
  std::map<std::string, files::Comparison> out;
  for (auto& row : files::compare(*opened[opened.size() - 2], *opened.back(), [](std::uint64_t) {}))
    out.emplace(row.tensor, row);
  return out;
}

TestTensor row_of(const std::string& name, const std::vector<float>& values, Dtype dtype = Dtype::kFloat32) {
  return {
      name, std::string(info(dtype).safetensors), {static_cast<std::int64_t>(values.size())}, floats(values, dtype)};
}

}  // namespace

TEST_CASE("difference: sums are those of a plain loop, whatever the length", "[difference]") {
  for (const std::size_t count : {1U, 7U, 8U, 9U, 65'543U, 200'001U}) {
    INFO(count);
    std::vector<float> a(count);
    std::vector<float> b(count);
    double squared = 0;
    double squares = 0;
    double largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      b[i] = static_cast<float>(i % 251) - 100.0F;
      a[i] = b[i] + (i % 3 == 0 ? 0.25F : 0.0F) + (i + 1 == count ? 3.0F : 0.0F);
      squared += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
      squares += std::pow(static_cast<double>(b[i]), 2);
      largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    }
    const Scratch scratch;
    write_checkpoint(scratch / "a", {row_of("x", a)});
    write_checkpoint(scratch / "b", {row_of("x", b)});
    const auto rows = compare(scratch / "a", scratch / "b");
    CHECK(rows.at("x").match == Match::kMeasured);
    CHECK(rows.at("x").rel_rmse == Approx(std::sqrt(squared / squares)).epsilon(1e-12));
    CHECK(rows.at("x").max_abs == largest);
  }
}

TEST_CASE("difference: special numbers", "[difference]") {
  const Scratch scratch;
  write_checkpoint(scratch / "a",
                   {row_of("nan", {kNan, 1}), row_of("new_nan", {1, kNan}), row_of("inf", {kInfinity, 1}),
                    row_of("zeros", {0, 1e-20F}), row_of("minus_zero", {-0.0F, 1})});
  write_checkpoint(scratch / "b", {row_of("nan", {kNan, 1}), row_of("new_nan", {1, 2}), row_of("inf", {kInfinity, 2}),
                                   row_of("zeros", {0, 0}), row_of("minus_zero", {0.0F, 1})});
  const auto rows = compare(scratch / "a", scratch / "b");
  CHECK(rows.at("nan").match == Match::kSameBytes);
  CHECK(std::isnan(rows.at("new_nan").max_abs));
  CHECK_FALSE(rows.at("new_nan").is_equal());
  CHECK(rows.at("inf").max_abs == 1);
  CHECK(std::isinf(rows.at("zeros").rel_rmse));
  CHECK_FALSE(rows.at("zeros").is_equal());
  CHECK(rows.at("minus_zero").is_equal());
}

TEST_CASE("difference: dtypes that change no value are equal", "[difference]") {
  const Scratch scratch;
  write_checkpoint(scratch / "a", {row_of("x", {1, 0.5F, -3}, Dtype::kBfloat16), {"i", "I64", {1}, "01234567"}});
  write_checkpoint(scratch / "b", {row_of("x", {1, 0.5F, -3}, Dtype::kFloat16), {"i", "U64", {1}, "01234567"}});
  const auto rows = compare(scratch / "a", scratch / "b");
  CHECK(rows.at("x").match == Match::kMeasured);
  CHECK(rows.at("x").is_equal());
  CHECK(rows.at("i").match == Match::kNotComparable);
}

TEST_CASE("parallel: every piece once, the first error out, the rest not begun", "[parallel]") {
  std::vector<std::atomic<int>> taken(1000);
  files::parallel_for(taken.size(), 3, [&](std::size_t i) { ++taken[i]; });
  CHECK(std::ranges::all_of(taken, [](const auto& count) { return count == 1; }));
  for (const int threads : {1, 2}) {
    std::atomic<std::size_t> begun = 0;
    const auto work = [&](std::size_t i) {
      ++begun;
      if (i == 10) throw Error(ErrorCode::kCorrupt, "ten");
    };
    // So many that it comes back at all only when it stops.
    CHECK_THROWS_WITH(files::parallel_for(SIZE_MAX / 2, threads, work), "ten");
    if (threads == 1) CHECK(begun == 11);
  }
  CHECK(files::largest_first(std::vector<std::uint64_t>{3, 9, 9, 1}) == std::vector<std::size_t>{1, 2, 0, 3});
}
