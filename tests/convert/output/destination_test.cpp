#include "convert/output/destination.h"

#include <cstdlib>

#include <halfbyte/convert.h>

#include "convert/synth.h"
#include "loader/files/manifest.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::quantize;

namespace {

using Names = std::vector<std::string>;

// A source in scratch/src; every test looks at what else is there afterwards.
void write_source(const Scratch& scratch) { write_checkpoint(scratch / "src", llama_tensors(), llama_config()); }

}  // namespace

TEST_CASE("destination: a file in the way", "[destination]") {
  const Scratch scratch;
  write_source(scratch);
  write_text(scratch / "dst", "mine");
  for (const bool overwrite : {false, true}) {
    check_error(ErrorCode::kAlreadyExists, {"/dst", "not a directory"},
                [&] { quantize(scratch / "src", scratch / "dst", {.overwrite = overwrite}); });
  }
  CHECK(read_text(scratch / "dst") == "mine");
  CHECK(names_in(scratch.path()) == Names{"dst", "src"});
}

TEST_CASE("destination: a directory in the way is replaced only when asked for", "[destination]") {
  const Scratch scratch;
  write_source(scratch);
  quantize(scratch / "src", scratch / "dst");
  const auto before = contents_of(scratch / "dst");
  check_error(ErrorCode::kAlreadyExists, {"/dst", "; overwrite replaces it"},
              [&] { quantize(scratch / "src", scratch / "dst", {.group_size = 32}); });
  CHECK(contents_of(scratch / "dst") == before);
  write_text(scratch / "dst" / "old.txt", "x");
  quantize(scratch / "src", scratch / "dst/", {.overwrite = true});
  CHECK(contents_of(scratch / "dst") == before);
  CHECK(names_in(scratch.path()) == Names{"dst", "src"});
}

TEST_CASE("destination: somebody's other files are never replaced", "[destination]") {
  const Scratch scratch;
  write_source(scratch);
  write_text(scratch / "dst" / "thesis.tex", "x");
  check_error(ErrorCode::kAlreadyExists, {"/dst", "no checkpoint"},
              [&] { quantize(scratch / "src", scratch / "dst", {.overwrite = true}); });
  CHECK(read_text(scratch / "dst" / "thesis.tex") == "x");
  fs::remove(scratch / "dst" / "thesis.tex");
  CHECK_NOTHROW(quantize(scratch / "src", scratch / "dst", {.overwrite = true}));
}

TEST_CASE("destination: the source is never in the way of the result", "[destination]") {
  const Scratch scratch;
  write_source(scratch);
  fs::create_symlink(scratch / "src", scratch / "link");
  const auto before = contents_of(scratch / "src");
  for (const char* name : {"src", "src/", "src/inner", "link", "link/inner", "../"}) {
    INFO(name);
    check_error(ErrorCode::kInvalidArgument, {"within each other"},
                [&] { quantize(scratch / "src", scratch / name, {.overwrite = true}); });
  }
  CHECK(contents_of(scratch / "src") == before);
}

TEST_CASE("destination: no parent directory", "[destination]") {
  const Scratch scratch;
  write_source(scratch);
  check_error(ErrorCode::kNotFound, {"/no", "create it"}, [&] { quantize(scratch / "src", scratch / "no" / "dst"); });
}

TEST_CASE("destination: a stop leaves nothing", "[destination]") {
  const Scratch scratch;
  write_source(scratch);
  for (const int after : {0, 1, 5}) {
    INFO("after " << after << " blocks");
    std::stop_source stop;
    convert::QuantizeOptions options;
    options.stop = stop.get_token();
    int blocks = 0;
    if (after == 0) stop.request_stop();
    options.progress = [&](std::uint64_t, std::uint64_t) {
      if (++blocks == after) stop.request_stop();
    };
    check_error(ErrorCode::kInterrupted, {"stopped"}, [&] { quantize(scratch / "src", scratch / "dst", options); });
    CHECK(names_in(scratch.path()) == Names{"src"});
  }
}

TEST_CASE("destination: an error in the caller's progress function leaves nothing", "[destination]") {
  const Scratch scratch;
  write_source(scratch);
  convert::QuantizeOptions options;
  options.progress = [](std::uint64_t, std::uint64_t) { throw std::runtime_error("mine"); };
  CHECK_THROWS_AS(quantize(scratch / "src", scratch / "dst", options), std::runtime_error);
  CHECK(names_in(scratch.path()) == Names{"src"});
}

TEST_CASE("destination: an overwrite that fails leaves the old one", "[destination]") {
  const Scratch scratch;
  write_source(scratch);
  quantize(scratch / "src", scratch / "dst");
  const auto before = contents_of(scratch / "dst");
  std::stop_source stop;
  stop.request_stop();
  convert::QuantizeOptions options;
  options.overwrite = true;
  options.stop = stop.get_token();
  check_error(ErrorCode::kInterrupted, {}, [&] { quantize(scratch / "src", scratch / "dst", options); });
  CHECK(contents_of(scratch / "dst") == before);
  CHECK(names_in(scratch.path()) == Names{"dst", "src"});
}

TEST_CASE("destination: what a killed run left is cleared away", "[destination]") {
  const Scratch scratch;
  write_source(scratch);
  write_text(scratch / "dst.partial" / "model.safetensors", "half");
  write_text(scratch / "dst.partial" / "sub" / "x", "y");
  quantize(scratch / "src", scratch / "dst");
  CHECK(names_in(scratch.path()) == Names{"dst", "src"});
  CHECK_FALSE(fs::exists(scratch / "dst" / "sub"));
}

TEST_CASE("destination: of two at one destination, one says so", "[destination]") {
  const Scratch scratch;
  write_source(scratch);
  convert::Destination other(scratch / "dst", {});
  other.write_file("halfbyte.json", "x");
  check_error(ErrorCode::kAlreadyExists, {"/dst.partial", "another process"},
              [&] { quantize(scratch / "src", scratch / "dst"); });
  other.commit();
  CHECK(names_in(scratch / "dst") == Names{"halfbyte.json"});
}

TEST_CASE("destination: a NAME.partial of somebody else's is left alone", "[destination]") {
  const Scratch scratch;
  for (const auto kind : {convert::Destination::Kind::kDirectory, convert::Destination::Kind::kFile}) {
    const convert::Destination::Options options{.kind = kind};
    for (const char* theirs : {"dst.partial", "dst.partial/thesis.tex", "dst.partial/checkpoint.txt"}) {
      INFO(theirs);
      write_text(scratch / theirs, "mine");
      check_error(ErrorCode::kAlreadyExists, {"/dst.partial", "in the way"},
                  [&] { convert::Destination(scratch / "dst", options); });
      CHECK(read_text(scratch / theirs) == "mine");
      CHECK(names_in(scratch.path()) == Names{"dst.partial"});
      fs::remove_all(scratch / "dst.partial");
    }
    fs::create_symlink("/nonexistent", scratch / "dst.partial");
    check_error(ErrorCode::kAlreadyExists, {"/dst.partial", "in the way"},
                [&] { convert::Destination(scratch / "dst", options); });
    fs::remove(scratch / "dst.partial");
  }
}

TEST_CASE("destination: leftovers that may be somebody else's are not cleared away", "[destination]") {
  const Scratch scratch;
  write_text(scratch / "dst.partial" / "thesis.tex", "mine");
  CHECK(convert::remove_leftovers(scratch / "dst").empty());
  CHECK(read_text(scratch / "dst.partial" / "thesis.tex") == "mine");
  write_text(scratch / "other.partial" / "journal", "x");
  CHECK(convert::remove_leftovers(scratch / "other").empty());
  CHECK(names_in(scratch.path()) == Names{"dst.partial"});
}

TEST_CASE("destination: one that appears during the work is not overwritten", "[destination]") {
  const Scratch scratch;
  {
    convert::Destination mine(scratch / "dst", {});
    write_text(scratch / "dst" / "theirs", "x");
    check_error(ErrorCode::kAlreadyExists, {"/dst"}, [&] { mine.commit(); });
  }
  CHECK(names_in(scratch.path()) == Names{"dst"});
  CHECK(names_in(scratch / "dst") == Names{"theirs"});
}

TEST_CASE("destination: the source stays as it was after an error", "[destination][hostile]") {
  const Scratch scratch;
  write_source(scratch);
  std::string file = read_text(scratch / "src" / "model.safetensors");
  write_text(scratch / "src" / "model.safetensors", file.substr(0, file.size() - 1));
  check_error(ErrorCode::kCorrupt, {"model.safetensors"}, [&] { quantize(scratch / "src", scratch / "dst"); });
  CHECK(names_in(scratch.path()) == Names{"src"});
}

TEST_CASE("destination: what cannot be read back gets no name", "[destination]") {
  for (const bool is_kept : {false, true}) {
    const Scratch scratch;
    write_source(scratch);
    quantize(scratch / "src", scratch / "sound");
    std::string manifest = read_text(scratch / "sound" / "halfbyte.json");
    const std::size_t at = manifest.find("\"rel_rmse\":");
    REQUIRE(at != std::string::npos);
    manifest.replace(at, manifest.find(',', at) - at, "\"rel_rmse\":null");
    check_error(ErrorCode::kIo, {"/dst does not get its name", "cannot be read back", "rel_rmse"}, [&] {
      convert::Destination destination(scratch / "dst", {});
      if (is_kept) destination.keep();
      destination.fill([&] {
        destination.copy_file(scratch / "sound" / "model.safetensors");
        destination.copy_file(scratch / "sound" / "config.json");
        destination.write_file("halfbyte.json", manifest);
      });
    });
    CHECK_FALSE(fs::exists(scratch / "dst"));
    CHECK(fs::exists(scratch / "dst.partial") == is_kept);
  }
}

TEST_CASE("destination: a full disk", "[destination]") {
  const Scratch scratch;
  write_source(scratch);
  const fs::path disk = scratch / "disk";
  fs::create_directory(disk);
  // Runs as root only; nothing of the name comes from outside.
  const std::string mount = "mount -t tmpfs -o size=256k tmpfs '" + disk.string() + "' 2>/dev/null";
  if (std::system(mount.c_str()) != 0) HALFBYTE_SKIP("no small disk can be mounted here, which takes root");
  check_error(ErrorCode::kNoResources, {"/dst", "MB", "free"}, [&] { quantize(scratch / "src", disk / "dst"); });
  CHECK(names_in(disk).empty());
  check_error(ErrorCode::kNoResources, {"/dst", "free"}, [&] { convert::synth(disk / "dst", {.like = "tiny"}); });
  CHECK(names_in(disk).empty());
  check_error(ErrorCode::kNoResources, {"/big", "space"}, [&] { files::OutputFile(disk / "big", 1'000'000); });
  {
    convert::Destination destination(disk / "dst", {});
    check_error(ErrorCode::kNoResources, {"/x", "space"},
                [&] { destination.write_file("x", std::string(1'000'000, 'x')); });
  }
  fs::remove(disk / "big");
  CHECK(names_in(disk).empty());
  CHECK(std::system(("umount '" + disk.string() + "'").c_str()) == 0);
}

TEST_CASE("destination: what parts have of a calibration is not asked of the disk again", "[destination]") {
  const Scratch scratch;
  const bool is_shared = GENERATE(false, true);
  const convert::Destination destination(scratch / "dst", {.keep_leftovers = true, .is_shared = is_shared});
  const fs::path states = scratch / "dst.partial" / "part-2-of-3" / "calibration" / "states-0";
  write_text(states, "");
  constexpr std::uint64_t kSize = std::uint64_t{1} << 40;
  fs::resize_file(states, kSize);  // a hole, which takes no room
  const std::uint64_t needed = files::free_bytes(scratch.path()) + kSize / 2;
  if (is_shared) {
    CHECK_NOTHROW(destination.check_space(needed));
  } else {
    check_error(ErrorCode::kNoResources, {"the disk has"}, [&] { destination.check_space(needed); });
  }
}
