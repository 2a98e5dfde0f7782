#include "loader/files/data_file_layout.h"

#include "loader/files/safetensors.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using files::output_tensor;

TEST_CASE("layout: large tensors first, on 64 bytes, without holes", "[layout]") {
  const auto file =
      files::lay_out("f",
                     {output_tensor("odd", Dtype::kUint8, {3}), output_tensor("half", Dtype::kBfloat16, {5}),
                      output_tensor("big", Dtype::kBfloat16, {8, 32}), output_tensor("shape", Dtype::kInt64, {2}),
                      output_tensor("empty", Dtype::kFloat32, {0, 4}), output_tensor("more", Dtype::kFloat32, {16})},
                     {{"format", "pt"}});
  CHECK(file.header.size() % 64 == 0);
  std::vector<std::string> order;
  std::uint64_t end = file.header.size();
  for (const auto& tensor : file.tensors) {
    order.push_back(tensor.name);
    CHECK(tensor.offset == end);
    CHECK(tensor.offset % static_cast<std::uint64_t>(size_bytes(tensor.dtype)) == 0);
    end += tensor.size_bytes;
  }
  CHECK(order == std::vector<std::string>{"big", "empty", "more", "shape", "half", "odd"});
  CHECK(end == file.size_bytes);
}

TEST_CASE("layout: the header is read back by the parser", "[layout]") {
  const auto file = files::lay_out(
      "f", {output_tensor("a \"b\"\n\xc3\xa9", Dtype::kFloat16, {2, 3}), output_tensor("z", Dtype::kBool, {})},
      {{"format", "pt"}});
  const Scratch scratch;
  write_text(scratch / "f", file.header + std::string(file.size_bytes - file.header.size(), '\0'));
  const auto read = files::read_safetensors_header(files::InputFile(scratch / "f"));
  REQUIRE(read.entries.size() == 2);
  CHECK(read.entries[0].name == "a \"b\"\n\xc3\xa9");
  CHECK(read.entries[0].offset == file.tensors[0].offset);
  CHECK(read.metadata.at("format") == "pt");
}
