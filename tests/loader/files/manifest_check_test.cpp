#include "loader/files/checkpoint.h"
#include "tests/loader/files/packed_checkpoint.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::Manifest;

TEST_CASE("manifest check: a sound checkpoint", "[checkpoint]") {
  const Scratch scratch;
  write_packed_checkpoint(scratch / "m");
  const auto opened = files::open_checkpoint(scratch / "m");
  CHECK(opened.is_quantized());
  CHECK_FALSE(opened.manifest.is_derived);
  CHECK(files::open_checkpoint(scratch / "m" / "model.safetensors").is_quantized());  // all the weights of its folder
  fs::remove(scratch / "m" / "config.json");
  check_error(ErrorCode::kUnsupported, {"a.weight_packed", "give the directory"},
              [&] { files::open_checkpoint(scratch / "m" / "model.safetensors"); });
}

TEST_CASE("manifest check: records that the files do not bear out", "[checkpoint][hostile]") {
  struct Case {
    const char* what;
    std::function<void(Manifest&)> change;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"other shape", [](Manifest& m) { m.tensors[1].shape = {4}; }, {"\"n.weight\"", "[3]", "[4]"}},
      {"other dtype",
       [](Manifest& m) { m.tensors[1].stored_dtype = Dtype::kInt32; },
       {"\"n.weight\"", "int32", "float32"}},
      {"other scale dtype",
       [](Manifest& m) { m.tensors[0].scale_dtype = Dtype::kFloat16; },
       {"\"a.weight\"", "float16"}},
      {"other group size", [](Manifest& m) { m.tensors[0].group_size = 32; }, {"\"a.weight\"", "[2, 1]"}},
      {"group size that does not divide",
       [](Manifest& m) { m.tensors[0].group_size = 24; },
       {"\"a.weight\"", "24", "32"}},
      {"more rows",
       [](Manifest& m) {
         m.tensors[0].shape = {3, 32};
       },
       {"\"a.weight\"", "[3, 4]"}},
      {"rank 1 packed", [](Manifest& m) { m.tensors[0].shape = {64}; }, {"\"a.weight\"", "[64]"}},
      {"in_features of 2^62",
       [](Manifest& m) {
         m.tensors[0].shape = {2, std::int64_t{1} << 62};
       },
       {"\"a.weight\""}},
      {"other scheme",
       [](Manifest& m) { m.tensors[0].scheme = &scheme(SchemeId::kSymInt8); },
       {"\"a.weight\"", "[2, 8]"}},
      {"other size", [](Manifest& m) { m.tensors[0].size_bytes = 55; }, {"\"a.weight\"", "55", "56"}},
      {"part missing",
       [](Manifest& m) { m.tensors[0].parts[files::Part::kScale] = "a.scale"; },
       {"\"a.weight\"", "\"a.scale\""}},
      {"part used twice",
       [](Manifest& m) { m.tensors[1].parts[files::Part::kCodes] = "a.weight_shape"; },
       {"\"n.weight\"", "\"a.weight\""}},
      {"tensor left over",
       [](Manifest& m) {
         m.tensors.pop_back();
         m.kept.clear();
       },
       {"\"n.weight\"", "belongs to no tensor"}},
      {"tensor missing",
       [](Manifest& m) {
         m.tensors.push_back(m.tensors[1]);
         m.tensors[2].name = m.tensors[2].parts[files::Part::kCodes] = "z";
       },
       {"\"z\""}},
      {"tie without owner",
       [](Manifest& m) {
         m.ties = {{"h.weight", "e.weight"}};
       },
       {"\"h.weight\"", "\"e.weight\""}},
      {"tie with a record",
       [](Manifest& m) {
         m.ties = {{"n.weight", "a.weight"}};
       },
       {"\"n.weight\""}},
      {"kept and unknown", [](Manifest& m) { m.kept["q"] = "why"; }, {"\"q\""}},
      {"derived and stored",
       [](Manifest& m) {
         m.buffers = {{"n.weight", Dtype::kFloat32, "rope", models::HeldJson(nlohmann::json::object())}};
       },
       {"\"n.weight\""}},
      {"file of another size",
       [](Manifest& m) {
         m.files = {{"model.safetensors", 9, 9, std::string(32, '0')}};
       },
       {"model.safetensors", "9"}},
  };
  for (const Case& hostile : cases) {
    INFO(hostile.what);
    const Scratch scratch;
    Manifest manifest = packed_manifest();
    hostile.change(manifest);
    write_packed_checkpoint(scratch / "m", manifest);
    auto parts = hostile.parts;
    parts.push_back("halfbyte.json");
    check_error(ErrorCode::kCorrupt, parts, [&] { files::open_checkpoint(scratch / "m"); });
  }
}
