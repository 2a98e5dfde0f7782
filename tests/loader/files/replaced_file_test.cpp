// Files that appear whole or not at all.
#include "loader/files/replaced_file.h"

#include "loader/files/printable.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

void write(const fs::path& path, std::string_view text) {
  files::ReplacedFile file(path, text.size());
  file.write(0, bytes(text));
  file.commit();
}

}  // namespace

TEST_CASE("replaced file: it appears, and takes another's place, when it is whole", "[replaced]") {
  const Scratch scratch;
  write(scratch / "a", "first");
  CHECK(read_text(scratch / "a") == "first");
  {
    files::ReplacedFile file(scratch / "a", 6);
    file.write(0, bytes("second"));
    CHECK(read_text(scratch / "a") == "first");
    CHECK(names_in(scratch.path()) == std::vector<std::string>{"a", "a.partial"});
  }
  CHECK(read_text(scratch / "a") == "first");
  write(scratch / "a", "third");
  CHECK(read_text(scratch / "a") == "third");
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"a"});
}

TEST_CASE("replaced file: a link stays one, and what it leads to is replaced", "[replaced]") {
  const Scratch scratch;
  write_text(scratch / "elsewhere" / "b", "old");
  fs::create_symlink(scratch / "elsewhere" / "b", scratch / "a");
  for (const char* text : {"first", "second"}) {
    write(scratch / "a", text);
    CHECK(read_text(scratch / "elsewhere" / "b") == text);
    CHECK(fs::is_symlink(scratch / "a"));
  }
  CHECK(names_in(scratch / "elsewhere") == std::vector<std::string>{"b"});
}

TEST_CASE("replaced file: what a killed process left goes, what is somebody else's stays", "[replaced]") {
  const Scratch scratch;
  write_text(scratch / "a.partial" / "file", "half of a long file");
  write(scratch / "a", "whole");
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"a"});
  write_text(scratch / "a.partial" / "notes", "mine");
  check_error(ErrorCode::kAlreadyExists, {"a.partial", "not of halfbyte"}, [&] { write(scratch / "a", "new"); });
  CHECK(read_text(scratch / "a.partial" / "notes") == "mine");
  CHECK(read_text(scratch / "a") == "whole");
}

TEST_CASE("replaced file: of two that write it, the second is refused", "[replaced]") {
  const Scratch scratch;
  {
    const files::ReplacedFile first(scratch / "a", 1);
    check_error(ErrorCode::kAlreadyExists, {"a.partial", "is writing here"}, [&] { write(scratch / "a", "x"); });
    CHECK(fs::exists(scratch / "a.partial" / "file"));
  }
  write(scratch / "a", "x");
  check_error(ErrorCode::kNotFound, {"absent", "no such directory"}, [&] { write(scratch / "absent" / "a", "x"); });
}
