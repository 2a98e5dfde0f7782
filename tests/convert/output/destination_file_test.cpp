// A destination that is a single file.
#include <sys/stat.h>
#include <unistd.h>

#include <halfbyte/error.h>

#include "convert/output/destination.h"
#include "loader/files/platform.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::Destination;

namespace {

using Names = std::vector<std::string>;

constexpr Destination::Options kNew{.kind = Destination::Kind::kFile};
constexpr Destination::Options kReplacing{.overwrite = true, .kind = Destination::Kind::kFile};

void write(const Destination& destination, const std::string& text) {
  files::OutputFile file(destination.partial_path(), text.size());
  file.write(0, std::as_bytes(std::span(text)));
  file.sync();
}

}  // namespace

TEST_CASE("file destination: the file appears whole and nothing else is left", "[destination]") {
  const Scratch scratch;
  {
    Destination destination(scratch / "m.gguf", kNew);
    write(destination, "one");
    CHECK(names_in(scratch.path()) == Names{"m.gguf.partial"});
    destination.commit();
  }
  CHECK(read_text(scratch / "m.gguf") == "one");
  CHECK(names_in(scratch.path()) == Names{"m.gguf"});
}

TEST_CASE("file destination: without a commit nothing is left", "[destination]") {
  const Scratch scratch;
  write(Destination(scratch / "m.gguf", kNew), "one");
  CHECK(names_in(scratch.path()).empty());
}

TEST_CASE("file destination: a file in the way is replaced only when asked for", "[destination]") {
  const Scratch scratch;
  write_text(scratch / "m.gguf", "old");
  check_error(ErrorCode::kAlreadyExists, {"/m.gguf", "; overwrite replaces"}, [&] { Destination(scratch / "m.gguf", kNew); });
  CHECK(names_in(scratch.path()) == Names{"m.gguf"});
  write(Destination(scratch / "m.gguf", kReplacing), "lost");
  CHECK(read_text(scratch / "m.gguf") == "old");
  Destination destination(scratch / "m.gguf", kReplacing);
  write(destination, "new");
  CHECK(read_text(scratch / "m.gguf") == "old");
  destination.commit();
  CHECK(read_text(scratch / "m.gguf") == "new");
  CHECK(names_in(scratch.path()) == Names{"m.gguf"});
}

TEST_CASE("file destination: a link is replaced, not what it names", "[destination]") {
  const Scratch scratch;
  write_text(scratch / "theirs", "theirs");
  fs::create_symlink(scratch / "theirs", scratch / "m.gguf");
  check_error(ErrorCode::kAlreadyExists, {"/m.gguf"}, [&] { Destination(scratch / "m.gguf", kNew); });
  Destination destination(scratch / "m.gguf", kReplacing);
  write(destination, "new");
  destination.commit();
  CHECK(read_text(scratch / "theirs") == "theirs");
  CHECK(fs::is_regular_file(fs::symlink_status(scratch / "m.gguf")));
}

TEST_CASE("file destination: a folder is no file, and a pipe is not replaced", "[destination]") {
  const Scratch scratch;
  fs::create_directory(scratch / "folder");
  for (const auto& options : {kNew, kReplacing}) {
    check_error(ErrorCode::kInvalidArgument, {"/folder", "name a file"},
                [&] { Destination(scratch / "folder", options); });
    REQUIRE(::mkfifo((scratch / "pipe").c_str(), 0600) == 0);
    check_error(ErrorCode::kAlreadyExists, {"/pipe", "not a file"}, [&] { Destination(scratch / "pipe", options); });
    fs::remove(scratch / "pipe");
  }
  check_error(ErrorCode::kNotFound, {"/no", "create it"}, [&] { Destination(scratch / "no" / "m.gguf", kNew); });
}

TEST_CASE("file destination: one that appears during the work is not overwritten", "[destination]") {
  const Scratch scratch;
  {
    Destination mine(scratch / "m.gguf", kNew);
    write(mine, "mine");
    write_text(scratch / "m.gguf", "theirs");
    check_error(ErrorCode::kAlreadyExists, {"/m.gguf"}, [&] { mine.commit(); });
  }
  CHECK(read_text(scratch / "m.gguf") == "theirs");
  CHECK(names_in(scratch.path()) == Names{"m.gguf"});
}

TEST_CASE("file destination: of two at one name, the second hears of the first", "[destination]") {
  const Scratch scratch;
  Destination first(scratch / "m.gguf", kNew);
  write(first, "first");
  const std::string pid = fs::exists("/proc/locks") ? "pid " + std::to_string(::getpid()) : "another process";
  for (const auto& options : {kNew, kReplacing})
    check_error(ErrorCode::kAlreadyExists, {"/m.gguf.partial", "another process", pid},
                [&] { Destination(scratch / "m.gguf", options); });
  first.commit();
  CHECK(read_text(scratch / "m.gguf") == "first");
}

TEST_CASE("file destination: what a killed run left is started over", "[destination]") {
  const Scratch scratch;
  write_text(scratch / "m.gguf.partial" / "checkpoint", "half a file");
  Destination destination(scratch / "m.gguf", kNew);
  write(destination, "whole");
  destination.commit();
  CHECK(read_text(scratch / "m.gguf") == "whole");
  CHECK(names_in(scratch.path()) == Names{"m.gguf"});
}

TEST_CASE("file destination: room is asked for beforehand", "[destination]") {
  const Scratch scratch;
  const Destination destination(scratch / "m.gguf", kNew);
  CHECK_NOTHROW(destination.check_space(1));
  check_error(ErrorCode::kNoResources, {"/m.gguf", "free"}, [&] { destination.check_space(std::uint64_t{1} << 60); });
}
