// A conversion that several runs share.
#include <algorithm>
#include <thread>

#include <halfbyte/convert.h>

#include "convert/output/destination.h"
#include "convert/output/work_parts.h"
#include "tests/loader/files/scratch.h"

using namespace halfbyte;
using namespace halfbyte::testing;
using convert::quantize;
using convert::QuantizeOptions;
using convert::QuantizeSummary;

namespace {

void write_source(const Scratch& scratch, const QuantizeOptions& options = {}) {
  write_checkpoint(scratch / "src", llama_tensors(), llama_config());
  quantize(scratch / "src", scratch / "wanted", options);
}

QuantizeSummary run_part(const Scratch& scratch, int index, int count, QuantizeOptions options = {}) {
  options.part = {index, count};
  return quantize(scratch / "src", scratch / "dst", options);
}

void check_result(const Scratch& scratch) {
  CHECK(contents_of(scratch / "dst") == contents_of(scratch / "wanted"));
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"dst", "src", "wanted"});
}

// Runs a part until `blocks` of it are done.
void stop_part(const Scratch& scratch, int index, int count, int blocks) {
  std::stop_source stop;
  QuantizeOptions options{.threads = 1, .memory_limit = std::uint64_t{64} << 20, .stop = stop.get_token()};
  options.progress = [&, done = 0](std::uint64_t, std::uint64_t) mutable {
    if (++done == blocks) stop.request_stop();
  };
  check_error(ErrorCode::kInterrupted, {"stopped", "dst.partial is kept", "the same command goes on"},
              [&] { run_part(scratch, index, count, options); });
}

void flip(const fs::path& file, std::uintmax_t at) {
  std::string text = read_text(file);
  text.at(at) = static_cast<char>(text.at(at) ^ 1);
  write_text(file, text);
}

}  // namespace

TEST_CASE("parts: one after another they write the bytes of a single run", "[parts]") {
  const Scratch scratch;
  const QuantizeOptions options =
      GENERATE(QuantizeOptions{}, QuantizeOptions{.scheme = "nf4", .nested_scales = true, .shard_size = 100'000},
               QuantizeOptions{.scheme = "hb4", .halfbyte_only = true, .embedding = "sym_int8"});
  write_source(scratch, options);
  const auto original = contents_of(scratch / "src");
  const QuantizeSummary last = run_part(scratch, 3, 3, options);
  CHECK_FALSE(last.is_whole);
  CHECK(last.parts_left == std::vector<int>{1, 2});
  const QuantizeSummary first = run_part(scratch, 1, 3, options);
  CHECK(first.parts_left == std::vector<int>{2});
  CHECK_FALSE(fs::exists(scratch / "dst"));
  const QuantizeSummary all = run_part(scratch, 2, 3, options);
  CHECK(all.is_whole);
  CHECK(all.parts_left.empty());
  CHECK(first.quantized_tensors + last.quantized_tensors < all.quantized_tensors);
  CHECK(first.source_bytes + last.source_bytes < all.source_bytes);
  CHECK(first.source_bytes > all.source_bytes / 6);
  CHECK(all.rel_rmse > 0);
  check_result(scratch);
  CHECK(contents_of(scratch / "src") == original);
  CHECK(run_part(scratch, 2, 3, options).was_complete);
}

TEST_CASE("parts: at the same time, and the last one completes the result", "[parts]") {
  const Scratch scratch;
  write_source(scratch);
  std::vector<QuantizeSummary> done(4);
  std::vector<std::string> errors(4);
  {
    std::vector<std::jthread> runs;
    for (int i = 0; i < 4; ++i) {
      runs.emplace_back([&, i] {
        try {
          done[i] = run_part(scratch, i + 1, 4, {.threads = 1});
        } catch (const std::exception& error) {
          errors[i] = error.what();
        }
      });
    }
  }
  CHECK(errors == std::vector<std::string>(4));
  CHECK(std::ranges::count(done, true, &QuantizeSummary::is_whole) == 1);
  check_result(scratch);
}

TEST_CASE("parts: more of them than tensors", "[parts]") {
  const Scratch scratch;
  write_source(scratch);
  int whole = 0;
  for (int i = 1; i <= 200; ++i) whole += run_part(scratch, i, 200).is_whole;
  CHECK(whole >= 1);
  check_result(scratch);
}

TEST_CASE("parts: one that was stopped goes on with what it had", "[parts]") {
  const Scratch scratch;
  write_source(scratch);
  stop_part(scratch, 2, 2, 3);
  run_part(scratch, 1, 2);
  const std::string journal = read_text(scratch / "dst.partial" / "part-2-of-2" / "journal");
  CHECK(std::ranges::count(journal, '\n') > 1);
  stop_part(scratch, 2, 2, 1);  // while it reads back
  CHECK(read_text(scratch / "dst.partial" / "part-2-of-2" / "journal") == journal);
  CHECK(run_part(scratch, 2, 2).is_whole);
  check_result(scratch);
}

TEST_CASE("parts: finish names what is missing, resume does it", "[parts]") {
  const Scratch scratch;
  write_source(scratch);
  check_error(ErrorCode::kInvalidArgument, {"dst.partial", "no part of this conversion"},
              [&] { quantize(scratch / "src", scratch / "dst", {.finish = true}); });
  CHECK_FALSE(fs::exists(scratch / "dst.partial"));
  run_part(scratch, 2, 4);
  check_error(ErrorCode::kInvalidArgument, {"tensors are not done: parts 1, 3 and 4 of 4", "or resume does it here"},
              [&] { quantize(scratch / "src", scratch / "dst", {.finish = true}); });
  check_error(ErrorCode::kAlreadyExists, {"dst.partial", "of this conversion", "resume goes on"},
              [&] { quantize(scratch / "src", scratch / "dst"); });
  const QuantizeSummary done = quantize(scratch / "src", scratch / "dst", {.resume = true});
  CHECK(done.resumed_bytes > 0);
  CHECK(done.resumed_bytes < done.source_bytes);
  check_result(scratch);
  CHECK(quantize(scratch / "src", scratch / "dst", {.finish = true}).was_complete);
}

TEST_CASE("parts: who is done while others are at work leaves the rest to them", "[parts]") {
  const Scratch scratch;
  write_source(scratch);
  run_part(scratch, 1, 2);
  {
    const convert::Destination other(scratch / "dst", {.keep_leftovers = true, .is_shared = true});
    const QuantizeSummary done = run_part(scratch, 2, 2);
    CHECK_FALSE(done.is_whole);
    CHECK(done.parts_left.empty());
    check_error(ErrorCode::kAlreadyExists, {"dst.partial", "is writing here"},
                [&] { quantize(scratch / "src", scratch / "dst", {.finish = true}); });
  }
  CHECK(quantize(scratch / "src", scratch / "dst", {.finish = true}).is_whole);
  check_result(scratch);
}

TEST_CASE("parts: a part is run once at a time", "[parts]") {
  const Scratch scratch;
  write_source(scratch);
  stop_part(scratch, 2, 2, 3);
  {
    const files::DirectoryLock other(scratch / "dst.partial" / "part-2-of-2");
    check_error(ErrorCode::kAlreadyExists, {"part-2-of-2", "is writing here"}, [&] { run_part(scratch, 2, 2); });
    run_part(scratch, 1, 2);
  }
  CHECK(run_part(scratch, 2, 2).is_whole);
  check_result(scratch);
}

TEST_CASE("parts: divided otherwise later, what is done stays done", "[parts]") {
  const Scratch scratch;
  write_source(scratch);
  run_part(scratch, 1, 3);
  run_part(scratch, 1, 2);
  CHECK(run_part(scratch, 2, 2).is_whole);
  check_result(scratch);
}

TEST_CASE("parts: of another conversion, or of a source that changed", "[parts]") {
  const Scratch scratch;
  write_source(scratch);
  run_part(scratch, 1, 2);
  const std::string journal = read_text(scratch / "dst.partial" / "part-1-of-2" / "journal");
  for (const bool is_last : {false, true}) {
    QuantizeOptions options{.scheme = "sym_int8"};
    if (is_last) options.part = {2, 2};
    if (!is_last) options.finish = true;
    check_error(ErrorCode::kInvalidArgument, {"dst.partial", "another conversion", "\"sym_int4\" there"},
                [&] { quantize(scratch / "src", scratch / "dst", options); });
  }
  CHECK(read_text(scratch / "dst.partial" / "part-1-of-2" / "journal") == journal);
  flip(scratch / "src" / "model.safetensors", fs::file_size(scratch / "src" / "model.safetensors") / 10);
  check_error(ErrorCode::kInvalidArgument, {"model.safetensors", "changed", "restart to delete it"},
              [&] { run_part(scratch, 2, 2); });
  CHECK(fs::exists(scratch / "dst.partial"));
  CHECK_FALSE(fs::exists(scratch / "dst"));
}

TEST_CASE("parts: damage to what another wrote is mended by the last", "[parts]") {
  const Scratch scratch;
  write_source(scratch);
  run_part(scratch, 1, 2);
  const fs::path file = scratch / "dst.partial" / "checkpoint" / "model.safetensors";
  std::uint64_t header = 0;
  std::memcpy(&header, read_text(file).data(), sizeof header);
  flip(file, sizeof header + header);
  CHECK(run_part(scratch, 2, 2).is_whole);
  check_result(scratch);
}

TEST_CASE("parts: what they do not go with is refused before anything is written", "[parts]") {
  const Scratch scratch;
  write_source(scratch);
  const auto refused = [&](const QuantizeOptions& options, const std::vector<std::string>& words) {
    check_error(ErrorCode::kInvalidArgument, words, [&] { quantize(scratch / "src", scratch / "dst", options); });
    CHECK(names_in(scratch.path()) == std::vector<std::string>{"src", "wanted"});
  };
  refused({.restart = true, .part = {{1, 2}}}, {"part", "not with restart"});
  refused({.restart = true, .finish = true}, {"finish", "not with restart"});
  refused({.part = {{1, 2}}, .finish = true}, {"part", "not with finish"});
  refused({.part = {{0, 2}}}, {"0 of 2 is no part"});
  refused({.part = {{3, 2}}}, {"3 of 2 is no part"});
  refused({.part = {{1, 2}}, .part_timeout = 0}, {"0 s to wait for another part", "1 is the least"});
  check_error(ErrorCode::kInvalidArgument, {"part", "keeps its codes"}, [&] {
    quantize(scratch / "wanted", scratch / "dst", {.keep_codes = true, .part = {{1, 2}}});
  });
}

TEST_CASE("parts: links in the work folder lead nowhere", "[parts][hostile]") {
  for (const char* linked : {"part-2-of-2", "part-2-of-2/journal"}) {
    INFO(linked);
    const Scratch scratch;
    const Scratch elsewhere;
    write_source(scratch);
    run_part(scratch, 1, 2);
    const fs::path inside = scratch / "dst.partial" / linked;
    write_text(elsewhere / "moved" / "journal", "precious");
    fs::create_directories(inside.parent_path());
    if (inside.filename() == "journal") {
      fs::create_hard_link(elsewhere / "moved" / "journal", inside);
    } else {
      fs::create_directory_symlink(elsewhere / "moved", inside);
    }
    CHECK(run_part(scratch, 2, 2).is_whole);
    check_result(scratch);
    CHECK(read_text(elsewhere / "moved" / "journal") == "precious");
  }
}

TEST_CASE("parts: names of their folders", "[parts]") {
  const auto is_part = [](const char* name) { return convert::part_of_folder(name).has_value(); };
  CHECK(convert::part_of_folder("part-2-of-14")->count == 14);
  for (const char* name : {"part-0-of-2", "part-3-of-2", "part-01-of-2", "part-1-of-2x", "part-1", "part--1-of-2",
                           "part-1-of-99999999999999999999", "parts", "journal"}) {
    INFO(name);
    CHECK_FALSE(is_part(name));
  }
}
