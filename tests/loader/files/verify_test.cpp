#include "loader/files/verify.h"

#include <cmath>
#include <limits>

#include "loader/files/tensor_reader.h"
#include "tests/loader/files/packed_checkpoint.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::open_checkpoint;

namespace {

void flip(const fs::path& path, std::size_t byte, int bit = 0) {
  std::string text = read_text(path);
  text.at(byte) = static_cast<char>(text.at(byte) ^ (1 << bit));
  write_text(path, text);
}

std::vector<float> expected_values() {
  std::vector<float> out;
  for (int code = -8; code < 8; ++code) out.push_back(static_cast<float>(code));
  for (int code = -8; code < 8; ++code) out.push_back(0.5F * static_cast<float>(code));
  out.resize(64, 0.0F);
  return out;
}

void write_original(const fs::path& directory, std::vector<float> values,
                    const std::vector<float>& norm = {1.0F, 2.0F, 3.0F}) {
  write_checkpoint(directory, {{"a.weight", "F32", {2, 32}, floats(values, Dtype::kFloat32)},
                               {"n.weight", "F32", {3}, floats(norm, Dtype::kFloat32)}});
}

}  // namespace

TEST_CASE("verify: packed values are read as docs/format.md says", "[verify]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  const auto opened = open_checkpoint(scratch / "m");
  files::TensorReader reader(opened, *opened.manifest.find("a.weight"));
  std::vector<float> values(64);
  reader.read(0, values);
  CHECK(values == expected_values());
  values.resize(32);
  reader.read(32, values);
  CHECK(values == std::vector<float>(32, 0.0F));
}

TEST_CASE("verify: a sound checkpoint has no findings", "[verify]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  std::uint64_t last = 0;
  const auto report =
      files::verify(open_checkpoint(scratch / "m"), nullptr, [&](std::uint64_t done, std::uint64_t total) {
        CHECK(done > last);
        CHECK(total == 68);
        last = done;
      });
  CHECK(report.findings.empty());
  CHECK(report.tensors_hashed == 2);
  CHECK(report.bytes_read == 68);
  CHECK(last == 68);
}

TEST_CASE("verify: every flipped bit of the tensors is found", "[verify]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  const fs::path file = scratch / "m" / "model.safetensors";
  const std::size_t end = fs::file_size(file);
  for (std::size_t byte = end - 68; byte < end; ++byte) {
    flip(file, byte, static_cast<int>(byte % 8));
    const auto report = files::verify(open_checkpoint(scratch / "m"));
    INFO("byte " << byte);
    REQUIRE_FALSE(report.findings.empty());
    CHECK(report.findings[0].tensor == (byte < end - 12 ? "a.weight" : "n.weight"));
    flip(file, byte, static_cast<int>(byte % 8));
  }
}

TEST_CASE("verify: files, the manifest among them", "[verify]") {
  const Scratch scratch;
  auto manifest = packed_manifest();
  manifest.files = {{"config.json", 2, 2, files::hash_hex("{}")}, {"gone.txt", 2, 2, files::hash_hex("ab")}};
  write_packed_checkpoint(scratch / "m", manifest);
  auto report = files::verify(open_checkpoint(scratch / "m"));
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].tensor == "gone.txt");
  write_text(scratch / "m" / "gone.txt", "ab");
  CHECK(files::verify(open_checkpoint(scratch / "m")).findings.empty());
  write_text(scratch / "m" / "config.json", "{}\n");
  write_text(scratch / "m" / "gone.txt", "aB");
  CHECK(files::verify(open_checkpoint(scratch / "m")).findings.size() == 2);
  manifest.files.clear();
  write_text(scratch / "m" / "halfbyte.json", files::manifest_to_json(manifest) + " ");
  report = files::verify(open_checkpoint(scratch / "m"));
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].tensor == "halfbyte.json");
}

TEST_CASE("verify: NaN and infinity are placed", "[verify]") {
  const Scratch scratch;
  auto tensors = packed_tensors();
  tensors[1].bytes = floats({1.0F, 0.5F, std::numeric_limits<float>::infinity(), -1.0F}, Dtype::kBfloat16);
  auto manifest = packed_manifest();
  for (auto& record : manifest.tensors) record.xxh3_128.clear();
  write_packed_checkpoint(scratch / "m", manifest, tensors);
  const auto report = files::verify(open_checkpoint(scratch / "m"));
  CHECK(report.tensors_unhashed == 2);
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].tensor == "a.weight");
  CHECK(report.findings[0].problem.find("\"a.weight_scale\", row 1, column 0") != std::string::npos);

  auto config = llama_config();
  auto llama = llama_tensors();
  std::vector<float> values(16 * 32, 0.0F);
  values[5 * 32 + 7] = std::numeric_limits<float>::quiet_NaN();
  llama[0].bytes = floats(values, Dtype::kBfloat16);
  write_checkpoint(scratch / "l", llama, config);
  const auto derived = files::verify(open_checkpoint(scratch / "l"));
  REQUIRE(derived.findings.size() == 1);
  CHECK(derived.findings[0].tensor == "model.embed_tokens.weight");
  CHECK(derived.findings[0].problem.find("row 5, column 7") != std::string::npos);
}

TEST_CASE("verify: the shape part must agree with the record", "[verify]") {
  const Scratch scratch;
  auto tensors = packed_tensors();
  tensors[2].bytes[0] = 3;
  auto manifest = packed_manifest();
  for (auto& record : manifest.tensors) record.xxh3_128.clear();
  write_packed_checkpoint(scratch / "m", manifest, tensors);
  const auto report = files::verify(open_checkpoint(scratch / "m"));
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].problem.find("[3, 32]") != std::string::npos);
}

TEST_CASE("verify: the difference from an original", "[verify]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  auto values = expected_values();
  values[0] -= 2.0F;  // -10
  write_original(scratch / "o", values);
  const auto original = open_checkpoint(scratch / "o");
  const auto report = files::verify(open_checkpoint(scratch / "m"), &original);
  CHECK(report.findings.empty());
  REQUIRE(report.differences.size() == 2);
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  CHECK(report.differences[0].rel_rmse == Approx(std::sqrt(4.0 / squares)));
  CHECK(report.differences[0].max_abs == 2.0);
  CHECK(report.differences[1].rel_rmse == 0.0);
}

TEST_CASE("verify: what only one side has, or in another shape", "[verify]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  write_checkpoint(scratch / "o", {float_tensor("a.weight", {1, 64}), float_tensor("other.weight", {1, 64})});
  const auto original = open_checkpoint(scratch / "o");
  const auto report = files::verify(open_checkpoint(scratch / "m"), &original);
  REQUIRE(report.findings.size() == 3);
  CHECK(report.findings[0].problem.find("[1, 64]") != std::string::npos);
  CHECK(report.findings[1].tensor == "other.weight");
  CHECK(report.findings[2].tensor == "n.weight");
}

TEST_CASE("verify: tensors that are no weights are compared byte for byte", "[verify]") {
  const Scratch scratch;
  write_checkpoint(scratch / "a", {{"i", "I64", {1}, "01234567"}, {"e", "F64", {0}, ""}});
  write_checkpoint(scratch / "b", {{"i", "I64", {1}, "0123456X"}, {"e", "F64", {0}, ""}});
  const auto original = open_checkpoint(scratch / "b");
  const auto report = files::verify(open_checkpoint(scratch / "a"), &original);
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].tensor == "i");
}

TEST_CASE("verify: scales that are odd are notes, scales that overflow are findings", "[verify]") {
  const Scratch scratch;
  auto manifest = packed_manifest();
  for (auto& record : manifest.tensors) record.xxh3_128.clear();
  const auto verify_with = [&](const std::vector<float>& scales) {
    auto tensors = packed_tensors();
    tensors[1].bytes = floats(scales, Dtype::kBfloat16);
    write_packed_checkpoint(scratch / "m", manifest, tensors);
    return files::verify(open_checkpoint(scratch / "m"));
  };
  const auto odd = verify_with({0.0F, 1e-39F, -0.0F, 1.0F});
  CHECK(odd.findings.empty());
  REQUIRE(odd.notes.size() == 2);
  CHECK(odd.notes[0].tensor == "a.weight");
  CHECK(odd.notes[0].problem.find("2 of 4 scales are 0") == 0);
  CHECK(odd.notes[1].problem.find("1 of 4 scales are subnormal") == 0);
  CHECK(verify_with({1.0F, 0.5F, 4e37F, 1.0F}).findings.empty());  // times 8: 3.2e38
  const auto large = verify_with({1.0F, 0.5F, 1.0F, -1e38F});
  REQUIRE(large.findings.size() == 1);
  CHECK(large.findings[0].problem.find("\"a.weight_scale\", row 1, column 1") != std::string::npos);
  CHECK(large.findings[0].problem.find("infinite") != std::string::npos);
}

TEST_CASE("verify: what its listener throws ends it", "[verify]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  check_error(ErrorCode::kInterrupted, {"stopped"}, [&] {
    files::verify(open_checkpoint(scratch / "m"), nullptr,
                  [](std::uint64_t, std::uint64_t) { throw Error(ErrorCode::kInterrupted, "stopped"); });
  });
}
