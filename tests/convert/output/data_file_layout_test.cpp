#include "convert/output/data_file_layout.h"

#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::output_tensor;

TEST_CASE("layout: names of shards and their index", "[layout]") {
  CHECK(convert::data_file_name(0, 1) == "model.safetensors");
  CHECK(convert::data_file_name(1, 12) == "model-00002-of-00012.safetensors");
  const auto one = convert::lay_out("1", {output_tensor("b", Dtype::kUint8, {3})}, {});
  const auto two = convert::lay_out("2", {output_tensor("a", Dtype::kUint8, {4})}, {});
  CHECK(nlohmann::json::parse(convert::index_text({one, two})) ==
        nlohmann::json{{"metadata", {{"total_size", 7}}}, {"weight_map", {{"a", "2"}, {"b", "1"}}}});
}
