#include "models/tokenizers/whole_file.h"

#include "tests/catch.h"
#include "tests/loader/files/scratch.h"

namespace halfbyte::models {

TEST_CASE("a file is read whole, up to its limit, or refused by name", "[tokenizer]") {
  const testing::Scratch scratch;
  const std::string bytes("line\r\n\0\xff end", 12);
  testing::write_text(scratch / "some", bytes);
  testing::write_text(scratch / "none", "");
  CHECK(read_whole_file(scratch / "some", bytes.size()) == bytes);
  CHECK(read_whole_file(scratch / "none", 0).empty());
  testing::check_error(ErrorCode::kCorrupt, {"some", std::to_string(bytes.size()) + " bytes", "has more than 3"},
                       [&] { read_whole_file(scratch / "some", 3); });
  testing::check_error(ErrorCode::kCorrupt, {"not a regular file"}, [&] { read_whole_file(scratch.path(), 3); });
  testing::check_error(ErrorCode::kCorrupt, {"missing: is not a regular file"},
                       [&] { read_whole_file(scratch / "missing", 3); });
}

}  // namespace halfbyte::models
