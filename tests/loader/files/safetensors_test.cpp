#include "loader/files/safetensors.h"

#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

struct Case {
  const char* what;
  std::string header;
  std::uint64_t data_bytes;
  ErrorCode code;
  std::vector<std::string> parts;
};

std::string one(const std::string& fields) { return R"({"w":{)" + fields + "}}"; }
const std::string kSound = R"("dtype":"F32","shape":[2,2],"data_offsets":[0,16])";

std::string bomb(std::size_t depth) {
  std::string out = R"({"w":)";
  for (std::size_t i = 0; i < depth; ++i) out += R"({"a":)";
  return out;
}

const std::vector<Case>& hostile_headers() {
  using enum ErrorCode;
  static const std::vector<Case> cases = {
      {"empty", "", 0, kCorrupt, {}},
      {"space first", " {}", 0, kCorrupt, {}},
      {"not an object", "[]", 0, kCorrupt, {}},
      {"cut", R"({"w":{"dtype")", 0, kCorrupt, {"not JSON"}},
      {"text after the object", "{} x", 0, kCorrupt, {"not JSON"}},
      {"second object", "{}{}", 0, kCorrupt, {"not JSON"}},
      {"zero byte after the object", std::string("{}\0", 3), 0, kCorrupt, {}},
      {"invalid UTF-8", "{\"\xff\":{" + kSound + "}}", 16, kCorrupt, {"not JSON"}},
      {"entry is a number", R"({"w":5})", 0, kCorrupt, {"\"w\""}},
      {"entry is a list", R"({"w":[]})", 0, kCorrupt, {"\"w\""}},
      {"entry is null", R"({"w":null})", 0, kCorrupt, {"\"w\""}},
      {"no dtype", one(R"("shape":[],"data_offsets":[0,4])"), 4, kCorrupt, {"\"w\"", "dtype"}},
      {"no shape", one(R"("dtype":"F32","data_offsets":[0,4])"), 4, kCorrupt, {"\"w\"", "shape"}},
      {"no offsets", one(R"("dtype":"F32","shape":[])"), 4, kCorrupt, {"\"w\"", "data_offsets"}},
      {"one offset", one(R"("dtype":"F32","shape":[],"data_offsets":[0])"), 4, kCorrupt, {"\"w\"", "data_offsets"}},
      {"three offsets",
       one(R"("dtype":"F32","shape":[],"data_offsets":[0,4,4])"),
       4,
       kCorrupt,
       {"\"w\"", "two numbers"}},
      {"dtype unknown", one(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), 8, kUnsupported, {"\"w\"", "F33"}},
      {"dtype a number", one(R"("dtype":32,"shape":[2],"data_offsets":[0,8])"), 8, kCorrupt, {"\"w\"", "dtype"}},
      {"dtype a list", one(R"("dtype":["F32"],"shape":[2],"data_offsets":[0,8])"), 8, kCorrupt, {"\"w\""}},
      {"dtype twice", one(R"("dtype":"F32",)" + kSound), 16, kCorrupt, {"\"w\"", "twice"}},
      {"shape twice", one(R"("shape":[4],)" + kSound), 16, kCorrupt, {"\"w\"", "twice"}},
      {"offsets twice", one(kSound + R"(,"data_offsets":[0,16])"), 16, kCorrupt, {"\"w\"", "twice"}},
      {"unknown field", one(kSound + R"(,"strides":5)"), 16, kCorrupt, {"\"w\"", "strides"}},
      {"shape a number", one(R"("dtype":"F32","shape":4,"data_offsets":[0,16])"), 16, kCorrupt, {"\"w\"", "shape"}},
      {"shape nested", one(R"("dtype":"F32","shape":[[4]],"data_offsets":[0,16])"), 16, kCorrupt, {"\"w\""}},
      {"dimension negative", one(R"("dtype":"F32","shape":[-4],"data_offsets":[0,16])"), 16, kCorrupt, {"\"w\"", "-4"}},
      {"dimension fractional",
       one(R"("dtype":"F32","shape":[4.0],"data_offsets":[0,16])"),
       16,
       kCorrupt,
       {"\"w\"", "4.0"}},
      {"dimension of 2^63",
       one(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0])"),
       0,
       kCorrupt,
       {"\"w\""}},
      {"dimension beyond 64 bits",
       one(R"("dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,0])"),
       0,
       kCorrupt,
       {"\"w\""}},
      {"product wraps to 4",
       one(R"("dtype":"U8","shape":[4194305,4194305,211106198978564],"data_offsets":[0,4])"),
       4,
       kCorrupt,
       {"\"w\""}},
      {"bits wrap", one(R"("dtype":"F64","shape":[576460752303423488],"data_offsets":[0,0])"), 0, kCorrupt, {"\"w\""}},
      {"ends within a byte", one(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2, kCorrupt, {"\"w\""}},
      {"extent too short",
       one(R"("dtype":"F32","shape":[4],"data_offsets":[0,12])"),
       12,
       kCorrupt,
       {"\"w\"", "16", "12"}},
      {"offsets reversed", one(R"("dtype":"F32","shape":[4],"data_offsets":[16,0])"), 16, kCorrupt, {"\"w\""}},
      {"offsets negative", one(R"("dtype":"F32","shape":[4],"data_offsets":[-16,0])"), 16, kCorrupt, {"\"w\"", "-16"}},
      {"offsets beyond the file", one(kSound), 15, kCorrupt, {"\"w\"", "copy it again"}},
      {"bytes left over", one(kSound), 17, kCorrupt, {"belong to none"}},
      {"data without tensors", "{}", 1, kCorrupt, {"belong to none"}},
      {"hole at the start", one(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2, kCorrupt, {"\"w\"", "holes"}},
      {"hole between",
       R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3,
       kCorrupt,
       {"\"b\"", "holes"}},
      {"overlap",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3,
       kCorrupt,
       {"\"b\"", "overlaps"}},
      {"the same bytes twice",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       2,
       kCorrupt,
       {"overlaps"}},
      {"empty tensor outside",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})",
       2,
       kCorrupt,
       {"\"b\""}},
      {"a name twice",
       R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2,
       kCorrupt,
       {"\"a\"", "twice"}},
      {"metadata of numbers", R"({"__metadata__":{"a":1}})", 0, kCorrupt, {"\"a\""}},
      {"metadata a list", R"({"__metadata__":[]})", 0, kCorrupt, {"__metadata__"}},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, kCorrupt, {"twice"}},
      {"metadata key twice", R"({"__metadata__":{"a":"1","a":"2"}})", 0, kCorrupt, {"twice"}},
      {"depth bomb of objects", bomb(1'000'000), 0, kCorrupt, {"\"w\""}},
      {"depth bomb of lists", R"({"w":{"shape":)" + std::string(1'000'000, '['), 0, kCorrupt, {"\"w\""}},
      {"rank of a million",
       one(R"("dtype":"U8","shape":[1)" +
           [] {
             std::string ones;
             for (int i = 0; i < 1'000'000; ++i) ones += ",1";
             return ones;
           }() +
           R"(],"data_offsets":[0,1])"),
       1,
       kCorrupt,
       {"\"w\"", "dimensions"}},
      {"name that steers a terminal", "{\"a\\n\\u001b[2J\":{\"dtype\":\"F33\"}}", 0, kUnsupported, {"a\\x0a\\x1b[2J"}},
  };
  return cases;
}

}  // namespace

TEST_CASE("safetensors: a sound header, byte by byte", "[safetensors]") {
  const Scratch scratch;
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("b":{"dtype":"I64","shape":[],"data_offsets":[4,12]},)"
                             R"("empty":{"data_offsets":[4,4],"shape":[3,0],"dtype":"F32"},)"
                             R"("a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]}}   )";
  write_text(scratch / "x.safetensors", with_length(header) + std::string(12, '\7'));
  const auto read = files::read_safetensors_header(files::InputFile(scratch / "x.safetensors"));
  CHECK(read.data_offset == 8 + header.size());
  CHECK(read.metadata == std::map<std::string, std::string>{{"format", "pt"}});
  REQUIRE(read.entries.size() == 3);
  CHECK(read.entries[0].name == "a");
  CHECK((read.entries[0].dtype == Dtype::kBfloat16));
  CHECK(read.entries[0].shape == std::vector<std::int64_t>{2, 1});
  CHECK(read.entries[0].offset == read.data_offset);
  CHECK(read.entries[0].size_bytes == 4);
  CHECK(read.entries[1].name == "empty");
  CHECK(read.entries[1].size_bytes == 0);
  CHECK(read.entries[2].name == "b");
  CHECK(read.entries[2].shape.empty());
  CHECK(read.entries[2].offset == read.data_offset + 4);
}

TEST_CASE("safetensors: every dtype is read under its own name", "[safetensors]") {
  for (const DtypeInfo& row : dtypes()) {
    const std::string fields = R"("dtype":")" + std::string(row.safetensors) + R"(","shape":[8],"data_offsets":[0,)" +
                               std::to_string(row.bits) + "]";
    const auto read = files::parse_safetensors_header(one(fields), static_cast<std::uint64_t>(row.bits), "x");
    CHECK((read.entries.at(0).dtype == row.dtype));
  }
}

TEST_CASE("safetensors: no tensors at all is legal", "[safetensors]") {
  CHECK(files::parse_safetensors_header("{}", 0, "x").entries.empty());
}

TEST_CASE("safetensors: hostile headers are refused by name", "[safetensors][hostile]") {
  for (const Case& hostile : hostile_headers()) {
    INFO(hostile.what);
    auto parts = hostile.parts;
    parts.push_back("x.safetensors");
    check_error(hostile.code, parts,
                [&] { files::parse_safetensors_header(hostile.header, hostile.data_bytes, "x.safetensors"); });
  }
}

TEST_CASE("safetensors: hostile lengths are refused before anything is allocated", "[safetensors][hostile]") {
  const Scratch scratch;
  const std::vector<std::pair<std::string, std::string>> files = {
      {"no bytes", ""},
      {"seven bytes", "\1\2\3\4\5\6\7"},
      {"longer than the file", with_length("{}", 3)},
      {"longer than allowed", with_length("{}", 100'000'001)},
      {"2^64 - 1", with_length("{}", ~std::uint64_t{0})},
      {"2^63", with_length("{}", std::uint64_t{1} << 63)},
      {"zero", with_length("", 0)},
  };
  for (const auto& [what, bytes] : files) {
    INFO(what);
    write_text(scratch / "x.safetensors", bytes);
    check_error(ErrorCode::kCorrupt, {"x.safetensors"},
                [&] { files::read_safetensors_header(files::InputFile(scratch / "x.safetensors")); });
  }
}
