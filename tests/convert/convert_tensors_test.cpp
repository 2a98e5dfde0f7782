#include "convert/convert_tensors.h"

#include <limits>

#include <halfbyte/convert.h>

#include "loader/files/verify.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

constexpr std::int64_t kRows = 700;
constexpr std::int64_t kColumns = 4096;  // 11 MB of float32: more than one block

std::string bytes_of(const files::Checkpoint& checkpoint, const std::string& name) {
  const auto* tensor = checkpoint.find(name);
  REQUIRE(tensor);
  std::string out(tensor->size_bytes, '\0');
  checkpoint.data_files[tensor->file]->read(tensor->offset, std::as_writable_bytes(std::span(out)));
  return out;
}

}  // namespace

TEST_CASE("conversion: blocks give what the whole matrix would", "[convert]") {
  const Scratch scratch;
  const auto big = float_tensor("big.weight", {kRows, kColumns}, Dtype::kFloat32);
  write_checkpoint(scratch / "src", {big});
  const auto summary = convert::quantize(scratch / "src", scratch / "dst");
  std::string codes(static_cast<std::size_t>(kRows * kColumns / 2), '\0');
  std::string scales(static_cast<std::size_t>(kRows * kColumns / 64 * 2), '\0');
  quant::ErrorStats stats;
  CHECK_FALSE(quant::quantize_rows(
      {reinterpret_cast<const std::byte*>(big.bytes.data()), Dtype::kFloat32, kRows, kColumns},
      {.scheme = &scheme(SchemeId::kSymInt4), .group_size = 64, .scale_dtype = Dtype::kFloat16},
      {reinterpret_cast<std::byte*>(codes.data()), reinterpret_cast<std::byte*>(scales.data())}, stats));
  const auto result = files::open_checkpoint(scratch / "dst");
  CHECK(bytes_of(result, "big.weight_packed") == codes);
  CHECK(bytes_of(result, "big.weight_scale") == scales);
  CHECK(summary.rel_rmse == Approx(stats.rel_rmse()));
  const auto& record = *result.manifest.find("big.weight");
  CHECK(record.error->max_abs == stats.max_abs);
  CHECK(record.error->rel_rmse == Approx(stats.rel_rmse()));
  const auto original = files::open_checkpoint(scratch / "src");
  const auto report = files::verify(result, &original);
  CHECK(report.findings.empty());
  CHECK(report.differences.at(0).rel_rmse == Approx(record.error->rel_rmse).epsilon(1e-3));
  CHECK(report.differences.at(0).max_abs == Approx(record.error->max_abs).epsilon(1e-5));
}

TEST_CASE("conversion: the same bytes whatever the number of threads", "[convert]") {
  const Scratch scratch;
  write_checkpoint(scratch / "src",
                   {float_tensor("a.weight", {kRows, kColumns}, Dtype::kBfloat16), float_tensor("b.weight", {33, 64}),
                    float_tensor("c", {}), float_tensor("d.weight", {2, 3, 4}), float_tensor("e.weight", {7, 172})});
  convert::quantize(scratch / "src", scratch / "one", {.threads = 1});
  for (const int threads : {2, 3, 0}) {
    convert::quantize(scratch / "src", scratch / "more", {.threads = threads, .overwrite = true});
    CHECK(contents_of(scratch / "more") == contents_of(scratch / "one"));
  }
}

TEST_CASE("conversion: a row larger than a block is read as one", "[convert]") {
  const Scratch scratch;
  write_checkpoint(scratch / "src", {float_tensor("a.weight", {2, 3 << 20}, Dtype::kFloat32)});
  convert::quantize(scratch / "src", scratch / "dst", {.search = quant::Search::kAbsmax});
  CHECK(files::verify(files::open_checkpoint(scratch / "dst")).findings.empty());
}

TEST_CASE("conversion: NaN and infinity are named with row and column", "[convert][hostile]") {
  struct Row {
    const char* name;
    std::vector<std::int64_t> shape;
    std::size_t index;
    float value;
    std::vector<std::string> parts;
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<Row> rows = {
      {"a.weight", {4, 64}, 2 * 64 + 5, kNan, {"\"a.weight\"", "row 2, column 5", "nan"}},
      {"a.weight", {4, 64}, 0, kInfinity, {"\"a.weight\"", "row 0, column 0", "inf"}},
      {"a.weight", {kRows, kColumns}, 699 * 4096 + 4095, kNan, {"row 699, column 4095"}},
      {"norm.weight", {64}, 63, -kInfinity, {"\"norm.weight\"", "row 0, column 63", "-inf"}},
      {"model.embed_tokens.weight", {kRows, kColumns}, 650 * 4096 + 1, kNan, {"row 650, column 1 "}},
  };
  for (const Row& row : rows) {
    INFO(row.name << " at " << row.index);
    const Scratch scratch;
    std::size_t count = 1;
    for (const std::int64_t dimension : row.shape) count *= static_cast<std::size_t>(dimension);
    std::vector<float> values(count, 0.5F);
    values[row.index] = row.value;
    write_checkpoint(scratch / "src", {{row.name, "F32", row.shape, floats(values, Dtype::kFloat32)}});
    check_error(ErrorCode::kCorrupt, row.parts, [&] { convert::quantize(scratch / "src", scratch / "dst"); });
    CHECK(names_in(scratch.path()) == std::vector<std::string>{"src"});
  }
}

TEST_CASE("conversion: infinities of what is no weight are kept", "[convert]") {
  const Scratch scratch;
  write_checkpoint(scratch / "src",
                   {{"mask", "F32", {2}, floats({0.0F, -std::numeric_limits<float>::infinity()}, Dtype::kFloat32)}});
  convert::quantize(scratch / "src", scratch / "dst");
  CHECK(files::verify(files::open_checkpoint(scratch / "dst")).findings.empty());
}
