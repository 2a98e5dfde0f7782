#include "loader/files/platform.h"

#include <sys/stat.h>

#include <array>
#include <thread>

#include "loader/files/hash.h"
#include "loader/files/printable.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

TEST_CASE("platform: reads say what is missing", "[platform]") {
  const Scratch scratch;
  check_error(ErrorCode::kNotFound, {"absent"}, [&] { files::InputFile(scratch / "absent"); });
  check_error(ErrorCode::kIo, {"not a regular file"}, [&] { files::InputFile(scratch.path()); });
  REQUIRE(::mkfifo((scratch / "pipe").c_str(), 0600) == 0);
  check_error(ErrorCode::kIo, {"not a regular file"}, [&] { files::InputFile(scratch / "pipe"); });
  write_text(scratch / "a", "0123456789");
  const files::InputFile file(scratch / "a");
  CHECK(file.size_bytes() == 10);
  std::array<std::byte, 4> out{};
  file.read(3, out);
  CHECK(std::memcmp(out.data(), "3456", 4) == 0);
  check_error(ErrorCode::kCorrupt, {"/a", "byte 10", "2 more"}, [&] { file.read(8, out); });
}

TEST_CASE("platform: what is written to a mapping stays in the process", "[platform]") {
  const Scratch scratch;
  write_text(scratch / "a", "abc");
  write_text(scratch / "empty", "");
  {
    const files::MappedFile mapped(scratch / "a");
    mapped.bytes()[0] = std::byte{'X'};
    CHECK(std::memcmp(mapped.bytes().data(), "Xbc", 3) == 0);
  }
  CHECK(read_text(scratch / "a") == "abc");
  CHECK(files::MappedFile(scratch / "empty").bytes().empty());
}

TEST_CASE("platform: output files have their size from the start", "[platform]") {
  const Scratch scratch;
  files::OutputFile file(scratch / "a", 6);
  CHECK(fs::file_size(scratch / "a") == 6);
  file.write(4, bytes("ef"));
  file.write(0, bytes("ab"));
  file.sync();
  CHECK(read_text(scratch / "a") == std::string("ab\0\0ef", 6));
  check_error(ErrorCode::kAlreadyExists, {"/a"}, [&] { files::OutputFile(scratch / "a", 1); });
}

TEST_CASE("platform: pieces from several threads stand where they were put, whatever huge pages they share",
          "[platform]") {
  const Scratch scratch;
  constexpr std::size_t kSize = (std::size_t{7} << 20) + 123, kPiece = 70'001, kUnwritten = 40, kThreads = 3;
  std::string wanted(kSize, '\0'), before(1000, 'b');
  for (std::size_t i = 0; i < kSize; ++i) wanted[i] = static_cast<char>(i * 31 + i / kPiece);
  std::memcpy(wanted.data() + kUnwritten * kPiece, before.data(), before.size());
  std::memset(wanted.data() + kUnwritten * kPiece + before.size(), 0, kPiece - before.size());
  files::OutputFile(scratch / "a", kSize).write(kUnwritten * kPiece, bytes(before));
  {
    files::OutputFile file(scratch / "a", kSize, files::OutputFile::Existing::kGoOn);
    std::vector<std::jthread> threads;
    for (std::size_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::size_t piece = thread; piece * kPiece < kSize; piece += kThreads) {
          const std::size_t begin = piece * kPiece;
          if (piece != kUnwritten) file.write(begin, bytes(wanted).subspan(begin, std::min(kPiece, kSize - begin)));
        }
      });
    }
  }
  CHECK(read_text(scratch / "a") == wanted);
}

TEST_CASE("platform: renames are exclusive, exchanges keep both", "[platform]") {
  const Scratch scratch;
  write_text(scratch / "a/x", "1");
  write_text(scratch / "b/x", "2");
  check_error(ErrorCode::kAlreadyExists, {"/b"}, [&] { files::rename_new(scratch / "a", scratch / "b"); });
  files::exchange(scratch / "a", scratch / "b");
  CHECK(read_text(scratch / "a/x") == "2");
  CHECK(read_text(scratch / "b/x") == "1");
  files::rename_new(scratch / "a", scratch / "c");
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"b", "c"});
  CHECK(files::free_bytes(scratch.path()) > 0);
  files::sync_directory(scratch.path());
}

TEST_CASE("platform: a directory is locked once, and follows a rename", "[platform]") {
  const Scratch scratch;
  fs::create_directory(scratch / "a");
  {
    const files::DirectoryLock lock(scratch / "a");
    check_error(ErrorCode::kAlreadyExists, {"/a", "another process"}, [&] { files::DirectoryLock(scratch / "a"); });
    fs::rename(scratch / "a", scratch / "b");
    check_error(ErrorCode::kAlreadyExists, {"/b"}, [&] { files::DirectoryLock(scratch / "b"); });
  }
  CHECK_NOTHROW(files::DirectoryLock(scratch / "b"));
}

TEST_CASE("hash: as xxhsum -H2 prints it", "[platform]") {
  CHECK(files::hash_hex("") == "99aa06d3014798d86001c324468d497f");
  files::Hash128 hash;
  hash.update(std::string_view("half"));
  hash.update(std::string_view("byte"));
  CHECK(hash.hex() == files::hash_hex("halfbyte"));
}

TEST_CASE("printable: names cannot break a line", "[platform]") {
  CHECK(files::in_quotes("a\nb\x1b[1m") == "\"a\\x0ab\\x1b[1m\"");
  CHECK(files::printable(std::string(1000, 'a')).size() == 259);
  CHECK(files::printable_bytes(999) == "999 bytes");
  CHECK(files::printable_bytes(2'200'000'000) == "2.20 GB");
  for (const char* name : {"", ".", "..", "a/b", "a\\b", "/a"}) CHECK_FALSE(files::is_plain_file_name(name));
  CHECK(files::is_plain_file_name("model.safetensors"));
}
