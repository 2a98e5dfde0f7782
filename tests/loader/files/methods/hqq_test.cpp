#include "loader/files/methods/hqq.h"

#include "tests/loader/files/read_values.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::open_checkpoint;

namespace {

template <class Int>
TestTensor number(const std::string& name, const char* dtype, std::initializer_list<Int> values,
                  bool is_scalar = true) {
  std::string bytes;
  for (const Int value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  std::vector<std::int64_t> shape;
  if (!is_scalar) shape = {static_cast<std::int64_t>(values.size())};
  return {name, dtype, shape, bytes};
}

TestTensor text(const std::string& name, const std::string& value) {
  return {name, "U8", {static_cast<std::int64_t>(value.size())}, value};
}

// A weight [4, 4] in groups of 8, with scales 2 and 0.5 and zeros 1.5 and 0.25.
std::vector<TestTensor> tensors(const std::string& packing, const std::string& codes, std::int32_t axis) {
  return {{"a.W_q",
           packing == "3bit_32" ? "I32" : "U8",
           {static_cast<std::int64_t>(codes.size()) / (packing == "3bit_32" ? 4 : 1)},
           codes},
          {"a.scale", "F16", {2, 1}, floats({2.0F, 0.5F}, Dtype::kFloat16)},
          {"a.zero", "F16", {2, 1}, floats({1.5F, 0.25F}, Dtype::kFloat16)},
          text("a.packing", packing),
          number<std::int32_t>("a.axis", "I32", {axis}),
          number<std::int32_t>("a.group_size", "I32", {8}),
          number<std::int64_t>("a.shape", "I64", {4, 4}, false),
          number<std::uint8_t>("a.quant_zero", "U8", {0}),
          number<std::uint8_t>("a.quant_scale", "U8", {0}),
          text("a.compute_dtype", "torch.float16"),
          float_tensor("a.bias", {4})};
}

ordered_json config() { return {{"model_type", "foo"}, {"quantization_config", {{"quant_method", "hqq"}}}}; }

files::Checkpoint opened(const Scratch& scratch, const std::vector<TestTensor>& all,
                         const ordered_json& with = config()) {
  write_checkpoint(scratch / "m", all, with);
  return open_checkpoint(scratch / "m");
}

float value(int code, int group) {
  return group == 0 ? (static_cast<float>(code) - 1.5F) * 2 : (static_cast<float>(code) - 0.25F) * 0.5F;
}

std::string counting(int count, int step) {
  std::string out;
  for (int i = 0; i < count; ++i) out += static_cast<char>(i * step);
  return out;
}

}  // namespace

TEST_CASE("HQQ: the first half of the rows is in the high halves", "[hqq]") {
  const Scratch scratch;
  // Row 0 of the codes is 0 ... 7, row 1 is 8 ... 15.
  const auto checkpoint = opened(scratch, tensors("4bit_u8", {"\x08\x19\x2a\x3b\x4c\x5d\x6e\x7f", 8}, 1));
  CHECK(checkpoint.kind == "HQQ");
  CHECK_FALSE(checkpoint.config->contains("quantization_config"));
  REQUIRE(checkpoint.manifest.tensors.size() == 2);  // the bias, and nothing of the rest
  const files::TensorRecord& record = record_of(checkpoint, "a.weight");
  CHECK(record.shape == std::vector<std::int64_t>{4, 4});
  CHECK(record.stored_dtype == Dtype::kFloat32);
  CHECK_FALSE(record.original_dtype);
  CHECK_THAT(checkpoint.notes.at(0), Catch::Contains("1 tensor is HQQ's"));
  std::vector<float> wanted;
  for (int i = 0; i < 16; ++i) wanted.push_back(value(i, i / 8));
  check_values(values_of(checkpoint, "a.weight"), wanted);
}

TEST_CASE("HQQ: groups along the first axis are columns of codes", "[hqq]") {
  const Scratch scratch;
  const auto checkpoint = opened(scratch, tensors("4bit_u8", {"\x08\x19\x2a\x3b\x4c\x5d\x6e\x7f", 8}, 0));
  std::vector<float> wanted;
  for (int i = 0; i < 16; ++i) wanted.push_back(value(i, i % 2));
  check_values(values_of(checkpoint, "a.weight"), wanted);
}

TEST_CASE("HQQ: 8, 2 and 1 bits", "[hqq]") {
  struct Row {
    const char* packing;
    std::string codes;
    int (*code)(int index);
  };
  const std::vector<Row> rows = {
      {"8bit_u8", counting(16, 15), [](int i) { return i * 15; }},
      // 8 rows of 2 here: axis 0.
      {"2bit_u8", {"\x1b\xe4\x1b\xe4", 4}, [](int i) { return i % 2 == 0 ? i / 4 : 3 - i / 4; }},
      {"1bit_u8", {"\xf0\xaa", 2}, [](int i) { return i % 2 == 0 ? i < 8 : 1 - i / 2 % 2; }},
  };
  for (const Row& row : rows) {
    INFO(row.packing);
    const Scratch scratch;
    const auto checkpoint = opened(scratch, tensors(row.packing, row.codes, 0));
    std::vector<float> wanted;
    for (int i = 0; i < 16; ++i) wanted.push_back(value(row.code(i), i % 2));
    check_values(values_of(checkpoint, "a.weight"), wanted);
  }
}

TEST_CASE("HQQ: ten rows of 3 bits lie in a word, the first highest", "[hqq]") {
  // Row r of 8, of two columns, has code r and 7 - r; two rows of padding.
  std::string codes;
  for (const int column : {0, 1}) {
    std::int32_t word = 0;
    for (int row = 0; row < 8; ++row) word |= (column == 0 ? row : 7 - row) << (27 - 3 * row);
    codes.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  const Scratch scratch;
  const auto checkpoint = opened(scratch, tensors("3bit_32", codes, 0));
  std::vector<float> wanted;
  for (int i = 0; i < 16; ++i) wanted.push_back(value(i % 2 == 0 ? i / 2 : 7 - i / 2, i % 2));
  check_values(values_of(checkpoint, "a.weight"), wanted);
}

TEST_CASE("HQQ: one scale for all, and any part by itself", "[hqq]") {
  std::vector<TestTensor> all = tensors("4bit_u8", {"\x08\x19\x2a\x3b\x4c\x5d\x6e\x7f", 8}, 1);
  all[1] = {"a.scale", "F32", {}, floats({2.0F}, Dtype::kFloat32)};
  all[2] = {"a.zero", "F32", {}, floats({1.5F}, Dtype::kFloat32)};
  const Scratch scratch;
  const auto checkpoint = opened(scratch, all, {{"model_type", "foo"}});  // HQQ's own files say nothing in config.json
  std::vector<float> wanted, three(3);
  for (int i = 0; i < 16; ++i) wanted.push_back(value(i, 0));
  check_values(values_of(checkpoint, "a.weight"), wanted);
  files::read_stored(checkpoint, *checkpoint.find("a.weight"), 28, std::as_writable_bytes(std::span(three)));
  check_values(three, {wanted[7], wanted[8], wanted[9]});
}

TEST_CASE("HQQ: what does not fit is refused by name", "[hqq][hostile]") {
  const std::int64_t huge = std::int64_t{1} << 40;
  struct Case {
    std::size_t index;
    TestTensor tensor;
    ErrorCode code;
    std::vector<std::string> parts;
  };
  const TestTensor gone{"elsewhere", "U8", {1}, "1"};
  using enum ErrorCode;
  const std::vector<Case> cases = {
      {0, {"a.W_q", "U8", {7}, "1234567"}, kCorrupt, {"a.W_q", "7 bytes"}},
      {1, gone, kCorrupt, {"a.W_q", "a.scale", "missing"}},
      {1, {"a.scale", "U8", {2}, "12"}, kCorrupt, {"a.scale", "uint8"}},
      {1, {"a.scale", "F16", {0}, ""}, kCorrupt, {"a.W_q", "[0]"}},
      {2, {"a.zero", "F16", {1}, "12"}, kCorrupt, {"a.W_q", "zeros [1]"}},
      {3, gone, kCorrupt, {"a.packing", "missing"}},
      {3, text("a.packing", "7bit_u8"), kUnsupported, {"a.W_q", "7bit_u8"}},
      {3, text("a.packing", std::string(100, 'x')), kUnsupported, {"a.W_q", "xxx"}},
      {4, number<std::int32_t>("a.axis", "I32", {2}), kCorrupt, {"a.W_q", "axis 2"}},
      {4, number<std::int64_t>("a.axis", "I64", {1}), kCorrupt, {"a.axis"}},
      {5, number<std::int32_t>("a.group_size", "I32", {-8}), kCorrupt, {"a.W_q", "group_size -8"}},
      {6, number<std::int64_t>("a.shape", "I64", {4, 5}, false), kCorrupt, {"a.W_q", "20 values"}},
      {6, number<std::int64_t>("a.shape", "I64", {-4, -4}, false), kCorrupt, {"a.W_q", "[-4, -4]"}},
      {6, number<std::int64_t>("a.shape", "I64", {huge, huge}, false), kCorrupt, {"a.W_q", "no tensor"}},
      {6, number<std::int64_t>("a.shape", "I64", {1, 1, 1, 4, 4}, false), kCorrupt, {"a.shape"}},
      {7, number<std::uint8_t>("a.quant_zero", "U8", {1}), kUnsupported, {"a.W_q", "quant_zero"}},
  };
  for (const Case& hostile : cases) {
    INFO(hostile.parts.back());
    std::vector<TestTensor> all = tensors("4bit_u8", {"\x08\x19\x2a\x3b\x4c\x5d\x6e\x7f", 8}, 1);
    all[hostile.index] = hostile.tensor;
    const Scratch scratch;
    check_error(hostile.code, hostile.parts, [&] { opened(scratch, all); });
  }
}
