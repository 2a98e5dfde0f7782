#include "loader/files/formats/pytorch/zip.h"

#include "tests/loader/files/formats/pytorch/torch_file.h"

using namespace halfbyte;
using namespace halfbyte::testing;

namespace {

std::vector<files::ZipMember> read(const Scratch& scratch, const std::string& bytes) {
  write_text(scratch / "z", bytes);
  return files::read_zip(files::InputFile(scratch / "z"));
}

}  // namespace

TEST_CASE("zip: members by name, where their bytes lie", "[zip]") {
  const Scratch scratch;
  for (const bool has_end64 : {false, true}) {
    for (const bool is_zip64 : {false, true}) {
      ZipEntry b{"b", "world"};
      b.is_zip64 = is_zip64;
      const std::string bytes = zip_of({b, {"a/x", "hello!"}, {"empty", ""}}, has_end64);
      for (const std::string& file : {bytes, bytes.substr(0, bytes.size() - 2) + std::string("\5\0hello", 7)}) {
        const auto members = read(scratch, file);
        REQUIRE(members.size() == 3);
        CHECK(members[0].name == "a/x");
        CHECK(file.substr(members[0].offset, members[0].size_bytes) == "hello!");
        CHECK(file.substr(members[1].offset, members[1].size_bytes) == "world");
        CHECK(members[2].size_bytes == 0);
        CHECK(files::find_member(members, "b") == &members[1]);
        CHECK_FALSE(files::find_member(members, "c"));
      }
    }
  }
}

TEST_CASE("zip: what PyTorch does not write is refused by name", "[zip][hostile]") {
  const Scratch scratch;
  const auto with = [](auto change) {
    ZipEntry entry{"m/data.pkl", "0123456789"};
    change(entry);
    return zip_of({entry, {"m/other", "abc"}});
  };
  struct Case {
    std::string file;
    ErrorCode code;
    std::string part;
  };
  const auto kCorrupt = ErrorCode::kCorrupt, kUnsupported = ErrorCode::kUnsupported;
  const std::vector<Case> cases{
      {with([](ZipEntry& e) { e.flags = 1; }), kUnsupported, "encrypted"},
      {with([](ZipEntry& e) { e.name = "m/../../x"; }), kUnsupported, "leaves its folder"},
      {with([](ZipEntry& e) { e.local_name = "m/data.pkx"; }), kCorrupt, "contradicts"},
      {with([](ZipEntry& e) { e.local_size = 9; }), kCorrupt, "two sizes"},
      {with([](ZipEntry& e) { e.central_size = 11, e.local_size = 11; }), kCorrupt, "overlap"},
      {with([](ZipEntry& e) { e.central_size = 1U << 30, e.local_size = 1U << 30; }), kCorrupt, "ends before"},
      {with([](ZipEntry& e) { e.central_size = 0xffffffff; }), kCorrupt, "no record of a large member"},
      {with([](ZipEntry& e) { e.local_offset = 0xfffffff0; }), kCorrupt, "points outside"},
      {with([](ZipEntry& e) { e.local_offset = 3; }), kCorrupt, "points outside"},
      {zip_of({{"a", "x"}, {"a", "y"}}), kCorrupt, "twice"},
      {"PK\3\4" + std::string(100, 'x'), kCorrupt, "no directory"},
      {"PK\5\6", kCorrupt, "no directory"},
  };
  for (const Case& each : cases) {
    INFO(each.part);
    check_error(each.code, {(scratch / "z").string(), each.part}, [&] { read(scratch, each.file); });
  }
}

TEST_CASE("zip: a member that many names share is no bomb", "[zip][hostile]") {
  const Scratch scratch;
  std::vector<ZipEntry> entries{{"aa", std::string(1000, 'x')}};
  for (const char* name : {"bb", "cc"}) {
    entries.push_back({name, ""});
    entries.back().local_offset = 0;
    entries.back().central_size = 1000;
  }
  check_error(ErrorCode::kCorrupt, {"contradicts"}, [&] { read(scratch, zip_of(entries)); });
}

TEST_CASE("zip: a count of members beyond the directory is refused before it is believed", "[zip][hostile]") {
  const Scratch scratch;
  std::string bytes = zip_of({{"a", "x"}}, true);
  const std::size_t end64 = bytes.find("PK\6\6");
  for (const std::size_t field : {24U, 32U, 40U, 48U}) {
    std::string lie = bytes;
    lie.replace(end64 + field, 8, std::string(7, '\xff') + "\x7f");
    if (field == 24) continue;  // entries on this disk, which nobody reads
    INFO(field);
    check_error(ErrorCode::kCorrupt, {"directory"}, [&] { read(scratch, lie); });
  }
  bytes.replace(bytes.find("PK\6\7") + 8, 8, std::string(8, '\xff'));
  check_error(ErrorCode::kCorrupt, {"points outside"}, [&] { read(scratch, bytes); });
}
