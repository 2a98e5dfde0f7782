// A conversion that ended too early, and the one that goes on. tests/tools/crash_test.py has the same at every call.
#include <cstdlib>
#include <fstream>

#include <halfbyte/convert.h>

#include "convert/output/destination.h"
#include "convert/output/journal.h"
#include "convert/synth.h"
#include "loader/files/hash.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::quantize;
using convert::QuantizeOptions;

namespace {

// Converts scratch/src until `blocks` of it are done; scratch/dst.partial stays.
void convert_a_part(const Scratch& scratch, int blocks, QuantizeOptions options = {}) {
  std::stop_source stop;
  options.stop = stop.get_token();
  options.resume = true;
  options.progress = [&, done = 0](std::uint64_t, std::uint64_t) mutable {
    if (++done == blocks) stop.request_stop();
  };
  check_error(ErrorCode::kInterrupted, {"stopped", "dst.partial is kept", "with resume"},
              [&] { quantize(scratch / "src", scratch / "dst", options); });
  CHECK(fs::exists(scratch / "dst.partial"));
  CHECK_FALSE(fs::exists(scratch / "dst"));
}

void write_source(const Scratch& scratch) {
  write_checkpoint(scratch / "src", llama_tensors(), llama_config());
  quantize(scratch / "src", scratch / "wanted");
}

void flip(const fs::path& file, std::uintmax_t at) {
  std::string text = read_text(file);
  text.at(at) = static_cast<char>(text.at(at) ^ 1);
  write_text(file, text);
}

convert::QuantizeSummary resume(const Scratch& scratch, QuantizeOptions options = {}) {
  options.resume = true;
  auto summary = quantize(scratch / "src", scratch / "dst", options);
  CHECK(contents_of(scratch / "dst") == contents_of(scratch / "wanted"));
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"dst", "src", "wanted"});
  return summary;
}

}  // namespace

TEST_CASE("resume: the same bytes, whatever the threads", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  const auto original = contents_of(scratch / "src");
  convert_a_part(scratch, 5, {.threads = 1});
  const auto summary = resume(scratch, {.threads = 2});
  CHECK(summary.resumed_bytes > 0);
  CHECK(summary.resumed_bytes < summary.source_bytes);
  CHECK(summary.rel_rmse > 0);
  CHECK(contents_of(scratch / "src") == original);
}

TEST_CASE("resume: nothing to go on with is a normal start", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  CHECK(resume(scratch).resumed_bytes == 0);
  fs::remove_all(scratch / "dst");
  write_text(scratch / "dst.partial" / "journal", "torn");
  write_text(scratch / "dst.partial" / "checkpoint" / "model.safetensors", "half");
  CHECK(resume(scratch).resumed_bytes == 0);
}

TEST_CASE("resume: what is complete is left alone", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  CHECK_FALSE(resume(scratch).was_complete);
  const auto time = fs::last_write_time(scratch / "dst" / "halfbyte.json");
  fs::create_directory(scratch / "dst.partial");  // killed after the rename
  CHECK(resume(scratch).was_complete);
  CHECK(resume(scratch, {.overwrite = true}).was_complete);
  CHECK(fs::last_write_time(scratch / "dst" / "halfbyte.json") == time);
}

TEST_CASE("resume: beside what is complete, another conversion's beginning stays", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  convert_a_part(scratch, 5, {.scheme = "sym_int8"});
  fs::rename(scratch / "wanted", scratch / "dst");
  const std::string journal = read_text(scratch / "dst.partial" / "journal");
  CHECK(quantize(scratch / "src", scratch / "dst", {.resume = true}).was_complete);
  CHECK(read_text(scratch / "dst.partial" / "journal") == journal);
}

TEST_CASE("resume: a result of something else is not taken for this one", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  resume(scratch);
  check_error(ErrorCode::kAlreadyExists, {"/dst", "group_size is 64 there and 32 here", "; overwrite replaces"},
              [&] { quantize(scratch / "src", scratch / "dst", {.group_size = 32, .resume = true}); });
  flip(scratch / "src" / "model.safetensors", fs::file_size(scratch / "src" / "model.safetensors") - 1);
  check_error(ErrorCode::kAlreadyExists, {"/dst", "the source's model.safetensors is another"},
              [&] { quantize(scratch / "src", scratch / "dst", {.resume = true}); });
}

TEST_CASE("resume: other options or another source are refused, and nothing is touched", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  convert_a_part(scratch, 5);
  const auto data = contents_of(scratch / "dst.partial" / "checkpoint");
  const std::string journal = read_text(scratch / "dst.partial" / "journal");
  const std::vector<std::pair<QuantizeOptions, std::string>> others = {
      {{.scheme = "sym_int8"}, "scheme is \"sym_int4\" there and \"sym_int8\" here"},
      {{.group_size = 32}, "group_size is 64 there and 32 here"},
      {{.search = quant::Search::kAbsmax}, "search is"},
      {{.keep = {"model.layers.0"}}, "keep is []"},
      {{.shard_size = 100'000}, "shard_size is not set there and 100000 here"},
  };
  for (const auto& [options, part] : others) {
    QuantizeOptions with_resume = options;
    with_resume.resume = true;
    check_error(ErrorCode::kInvalidArgument, {"dst.partial", part, "restart to delete it"},
                [&] { quantize(scratch / "src", scratch / "dst", with_resume); });
    CHECK(contents_of(scratch / "dst.partial" / "checkpoint") == data);
    CHECK(read_text(scratch / "dst.partial" / "journal") == journal);
  }
  write_checkpoint(scratch / "other", {float_tensor("a.weight", {2, 64})}, llama_config());
  check_error(ErrorCode::kInvalidArgument, {"dst.partial", "is the beginning of another conversion"},
              [&] { quantize(scratch / "other", scratch / "dst", {.resume = true}); });
  fs::remove_all(scratch / "other");
  CHECK(resume(scratch).resumed_bytes > 0);
}

TEST_CASE("resume: a source that changed under the same header is noticed", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  convert_a_part(scratch, 5);
  flip(scratch / "src" / "model.safetensors", fs::file_size(scratch / "src" / "model.safetensors") / 10);
  check_error(ErrorCode::kInvalidArgument, {"model.safetensors", "changed", "restart to delete it"},
              [&] { quantize(scratch / "src", scratch / "dst", {.resume = true}); });
  CHECK(fs::exists(scratch / "dst.partial"));
}

TEST_CASE("resume: bytes that are not what the journal says are made again", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  const fs::path partial = scratch / "dst.partial" / "checkpoint" / "model.safetensors";
  std::uint64_t all = 0;
  for (const int damage : {0, 1, 2}) {
    INFO("damage " << damage);
    fs::remove_all(scratch / "dst");
    convert_a_part(scratch, 8);
    if (damage == 1) flip(scratch / "dst.partial" / "journal", fs::file_size(scratch / "dst.partial" / "journal") - 2);
    if (damage == 2) fs::resize_file(partial, 100);
    const auto summary = resume(scratch);
    if (damage == 0) all = summary.resumed_bytes;
    if (damage == 1) CHECK(summary.resumed_bytes < all);
    if (damage == 2) CHECK(summary.resumed_bytes == 0);
  }
}

TEST_CASE("resume: links in the work folder lead nowhere", "[resume][hostile]") {
  for (const char* linked : {"checkpoint", "checkpoint/model.safetensors", "journal"}) {
    INFO(linked);
    const Scratch scratch;
    const Scratch elsewhere;
    write_source(scratch);
    convert_a_part(scratch, 5);
    const fs::path inside = scratch / "dst.partial" / linked;
    const bool is_folder = fs::is_directory(inside);
    fs::rename(inside, elsewhere / "moved");
    if (is_folder) {
      fs::create_directory_symlink(elsewhere / "moved", inside);
      write_text(elsewhere / "moved" / "precious", "precious");
    } else {
      fs::create_hard_link(elsewhere / "moved", inside);
    }
    const auto before = is_folder ? read_text(elsewhere / "moved" / "precious") : read_text(elsewhere / "moved");
    resume(scratch);
    CHECK((is_folder ? read_text(elsewhere / "moved" / "precious") : read_text(elsewhere / "moved")) == before);
    CHECK_FALSE(fs::is_symlink(scratch / "dst"));
  }
}

TEST_CASE("journal: lines that nobody wrote end it", "[resume][hostile]") {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const std::string before = R"({"tensor":7,"source_hash":"s","xxh3_128":"h","error":)";
  for (const std::string& text :
       {R"({"a":)" + deep + "}", before + "[-1,1,1]}", before + "[1,1,1e999]}", before + "3}"}) {
    INFO(text.substr(0, 80));
    const Scratch scratch;
    convert::Journal(scratch.path(), nlohmann::json{{"a", 1}});
    std::ofstream(scratch / "journal", std::ios::app) << files::hash_hex(text) << ' ' << text << '\n';
    const auto contents = convert::read_journal(scratch.path());
    REQUIRE(contents);
    CHECK(contents->finished.empty());
  }
}

TEST_CASE("resume: a disk that fills up in the middle", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  const fs::path disk = scratch / "disk";
  fs::create_directory(disk);
  // Runs as root only; nothing of the name comes from outside.
  const std::string mount = "mount -t tmpfs -o size=16m tmpfs '" + disk.string() + "' 2>/dev/null";
  if (std::system(mount.c_str()) != 0) HALFBYTE_SKIP("no small disk can be mounted here, which takes root");
  QuantizeOptions options{.resume = true};
  options.progress = [&](std::uint64_t, std::uint64_t) {
    std::ofstream ballast(disk / "ballast", std::ios::app);
    while (ballast << std::string(4096, 'x') << std::flush) {
    }
  };
  check_error(ErrorCode::kNoResources, {"space", "dst.partial is kept", "with resume goes on"},
              [&] { quantize(scratch / "src", disk / "dst", options); });
  CHECK_FALSE(fs::exists(disk / "dst"));
  fs::remove(disk / "ballast");
  CHECK(quantize(scratch / "src", disk / "dst", {.resume = true}).resumed_bytes > 0);
  CHECK(contents_of(disk / "dst") == contents_of(scratch / "wanted"));
  CHECK(names_in(disk) == std::vector<std::string>{"dst"});
  CHECK(std::system(("umount '" + disk.string() + "'").c_str()) == 0);
}

TEST_CASE("resume: what could be gone on with is in the way of whoever forgets to say so", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  convert_a_part(scratch, 5);
  const auto data = contents_of(scratch / "dst.partial" / "checkpoint");
  const std::string journal = read_text(scratch / "dst.partial" / "journal");
  std::stop_source stop;
  stop.request_stop();
  for (const auto& options :
       {QuantizeOptions{}, QuantizeOptions{.threads = 2}, QuantizeOptions{.stop = stop.get_token()}}) {
    check_error(ErrorCode::kAlreadyExists,
                {"dst.partial: ", " of 12 tensors of this conversion", "resume goes on, restart deletes them"},
                [&] { quantize(scratch / "src", scratch / "dst", options); });
    CHECK(contents_of(scratch / "dst.partial" / "checkpoint") == data);
    CHECK(read_text(scratch / "dst.partial" / "journal") == journal);
  }
  CHECK(resume(scratch).resumed_bytes > 0);
}

TEST_CASE("resume: what could be gone on with is deleted for whoever asks", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  convert_a_part(scratch, 5);
  check_error(ErrorCode::kInvalidArgument, {"resume and restart exclude each other"},
              [&] { quantize(scratch / "src", scratch / "dst", {.resume = true, .restart = true}); });
  const auto summary = quantize(scratch / "src", scratch / "dst", {.restart = true});
  CHECK(summary.resumed_bytes == 0);
  CHECK(summary.warnings.empty());
  CHECK(contents_of(scratch / "dst") == contents_of(scratch / "wanted"));
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"dst", "src", "wanted"});
}

TEST_CASE("resume: the beginning of another conversion makes way, and that is said", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  const auto check_warned = [](const std::vector<Text>& warnings, const std::string& part) {
    REQUIRE(warnings.size() == 1);
    INFO(warnings.front().str());
    CHECK(warnings.front().str().find("dst.partial held the beginning of another conversion, ") != std::string::npos);
    CHECK(warnings.front().str().find(part) != std::string::npos);
    CHECK(warnings.front().str().ends_with("which was deleted"));
  };
  const auto leave_a_part = [&] {
    fs::remove_all(scratch / "dst");
    convert_a_part(scratch, 5);
  };
  leave_a_part();
  check_warned(quantize(scratch / "src", scratch / "dst", {.group_size = 32}).warnings,
               "(conversion: group_size is 64 there and 32 here)");
  leave_a_part();
  check_warned(convert::dequantize(scratch / "wanted", scratch / "dst").warnings, " finished tensor");
  leave_a_part();
  check_warned(convert::repack(scratch / "wanted", scratch / "dst").warnings, " finished tensor");
  leave_a_part();
  check_warned(convert::synth(scratch / "dst", {.like = "tiny"}).warnings, " finished tensor");
  leave_a_part();
  std::stop_source stop;
  stop.request_stop();
  check_error(ErrorCode::kInterrupted, {"dst.partial held the beginning of another conversion", "which was deleted"},
              [&] { convert::dequantize(scratch / "wanted", scratch / "dst", {.stop = stop.get_token()}); });
}

TEST_CASE("resume: a beginning without a finished tensor is no loss", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  convert_a_part(scratch, 5);
  std::string journal = read_text(scratch / "dst.partial" / "journal");
  write_text(scratch / "dst.partial" / "journal", journal.substr(0, journal.find('\n') + 1));
  const auto summary = quantize(scratch / "src", scratch / "dst");
  CHECK(summary.warnings.empty());
  CHECK(contents_of(scratch / "dst") == contents_of(scratch / "wanted"));
}

TEST_CASE("resume: a second process is refused while the first one works", "[resume]") {
  const Scratch scratch;
  write_source(scratch);
  convert_a_part(scratch, 5);
  {
    const files::DirectoryLock lock(scratch / "dst.partial");
    check_error(ErrorCode::kAlreadyExists, {"/dst.partial", "another process"},
                [&] { quantize(scratch / "src", scratch / "dst", {.resume = true}); });
  }
  CHECK(resume(scratch).resumed_bytes > 0);
}

TEST_CASE("journal: what is written is read, to the last bit of a double", "[resume]") {
  const Scratch scratch;
  const nlohmann::json identity{{"a", 1}};
  const convert::FinishedTensor packed{"s", {"h", quant::ErrorStats{0.1, 1.0 / 3.0, 1e-310}, 0.1F}};
  const convert::FinishedTensor kept{"t", {"i", {}, {}}};
  {
    convert::Journal journal(scratch.path(), identity);
    journal.append(7, packed);
  }
  auto contents = convert::read_journal(scratch.path());
  REQUIRE(contents);
  {
    std::ofstream(scratch / "journal", std::ios::app) << "a torn line";
    convert::Journal journal(scratch.path(), *convert::read_journal(scratch.path()));
    journal.append(8, kept);
  }
  contents = convert::read_journal(scratch.path());
  REQUIRE(contents);
  CHECK(*contents->identity == identity);
  CHECK(contents->size_bytes == fs::file_size(scratch / "journal"));
  REQUIRE(contents->finished.size() == 2);
  const auto& read = contents->finished.at(7);
  CHECK(read.source_hash == "s");
  CHECK(read.result.xxh3_128 == "h");
  CHECK(read.result.error->sum_squared_error == packed.result.error->sum_squared_error);
  CHECK(read.result.error->sum_squares == packed.result.error->sum_squares);
  CHECK(read.result.error->max_abs == packed.result.error->max_abs);
  CHECK(read.result.nested_offset == 0.1F);
  CHECK_FALSE(contents->finished.at(8).result.error);
}
