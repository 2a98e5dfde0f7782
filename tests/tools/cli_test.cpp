// What both programs share: statuses, numbers, suggestions, escaping.
#include <array>
#include <new>
#include <set>
#include <string>
#include <vector>

#include <halfbyte/error.h>

#include "tests/catch.h"
#include "tools/cli/errors.h"
#include "tools/cli/exit_status.h"
#include "tools/cli/format.h"
#include "tools/cli/habits.h"
#include "tools/cli/parse.h"
#include "tools/cli/progress.h"
#include "tools/cli/suggest.h"
#include "tools/cli/verb.h"
#include "tools/cli/wrap.h"

using namespace halfbyte;
using namespace halfbyte::cli;

TEST_CASE("cli: every error code has the documented exit status", "[cli]") {
  const std::vector<std::pair<ErrorCode, int>> documented = {{ErrorCode::kInvalidArgument, 2},
                                                             {ErrorCode::kNotFound, 1},
                                                             {ErrorCode::kAlreadyExists, 1},
                                                             {ErrorCode::kCorrupt, 3},
                                                             {ErrorCode::kUnsupported, 3},
                                                             {ErrorCode::kContract, 3},
                                                             {ErrorCode::kIo, 1},
                                                             {ErrorCode::kNoResources, 4},
                                                             {ErrorCode::kInterrupted, 130}};
  std::set<std::string_view> names;
  for (const auto& [code, status] : documented) {
    CHECK(static_cast<int>(exit_status(code)) == status);
    CHECK(names.insert(name(code)).second);
  }
}

TEST_CASE("cli: exceptions end in a status", "[cli]") {
  CHECK(report_errors([] { return ExitStatus::kDone; }) == ExitStatus::kDone);
  CHECK(report_errors([]() -> ExitStatus { throw UsageError("a test's usage error"); }) == ExitStatus::kUsage);
  CHECK(report_errors([]() -> ExitStatus { throw Error(ErrorCode::kContract, "a test's\nerror"); }) ==
        ExitStatus::kBadData);
  CHECK(report_errors([]() -> ExitStatus { throw std::bad_alloc(); }) == ExitStatus::kNoResources);
  CHECK(report_errors([]() -> ExitStatus { throw 1; }) == ExitStatus::kFailed);
}

TEST_CASE("cli: a usage error knows the option at fault", "[cli]") {
  CHECK(UsageError("--scheme: 'x' is not one of a, b").option() == "--scheme");
  CHECK(UsageError("--depth, --prompt-tokens and --gen-tokens make 9").option() == "--depth");
  CHECK(UsageError("-q and -v exclude each other").option() == "-q");
  CHECK(UsageError("unknown option '--x'", "--x").option() == "--x");
  CHECK(UsageError("SRC is required").option().empty());
}

TEST_CASE("cli: numbers as people read them", "[cli]") {
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(96) == "96 B");
  CHECK(human_bytes(393'216) == "393 kB");
  CHECK(human_bytes(3'935'616) == "3.94 MB");
  CHECK(human_bytes(640'000'000) == "0.64 GB");
  CHECK(human_bytes(2'200'000'000) == "2.20 GB");
  CHECK(human_bytes(13'476'000'000) == "13.5 GB");
  CHECK(human_count(192) == "192");
  CHECK(human_count(1'100'000'000) == "1.10 G");
  CHECK(human_seconds(0.213) == "0.21 s");
  CHECK(human_seconds(4.12) == "4.1 s");
  CHECK(human_seconds(725) == "12 min 05 s");
  CHECK(human_shape(std::array<std::int64_t, 2>{1024, 192}) == "[1024, 192]");
  CHECK(human_shape({}) == "[]");
  CHECK(counted(1, "tensor") == "1 tensor");
  CHECK(counted(0, "tensor") == "0 tensors");
}

TEST_CASE("cli: a mistyped word finds its neighbour, a foreign one none", "[cli]") {
  const std::vector<std::string> verbs = {"quantize", "inspect", "verify", "generate", "synth"};
  CHECK(did_you_mean("quantise", verbs) == "; did you mean 'quantize'?");
  CHECK(did_you_mean("quant", verbs) == "; did you mean 'quantize'?");
  CHECK(did_you_mean("insepct", verbs) == "; did you mean 'inspect'?");
  CHECK(did_you_mean("frobnicate", verbs).empty());
  CHECK(did_you_mean("", verbs).empty());
}

TEST_CASE("cli: a habit of another program finds what is here, in any spelling", "[cli]") {
  const std::vector<std::string> options = {"CKPT", "--prompt", "--max-gen-len", "--temperature", "--json", "--dtype"};
  for (const char* typed : {"-n", "--n-predict", "--max_new_tokens", "--Max-New-Tokens", "-n32"})
    CHECK(hint(typed, options) == "; here it is '--max-gen-len'");
  CHECK(hint("-p", options) == "; here it is '--prompt'");
  CHECK(hint("-m", options) == "; the model is the first word after the verb, without an option");
  CHECK(hint("-M", options).empty());
  CHECK(hint("--promt", options) == "; did you mean '--prompt'?");
  CHECK(hint("--frobnicate", options).empty());
  CHECK(hint("FP16", std::vector<std::string>{"float32", "float16"}) == "; here it is 'float16'");
  CHECK(hint("FP16", std::vector<std::string>{"F32", "F16"}) == "; here it is 'F16'");
}

TEST_CASE("cli: hostile names stay on their line", "[cli]") {
  CHECK(cli::printable("plain \xC3\xA9") == "plain \xC3\xA9");
  CHECK(cli::printable("a\nb\x1b[2J") == "a\\x0ab\\x1b[2J");
  CHECK(cli::printable("\xC2\x9B"
                       "31m") == "\\u009b31m");
}

TEST_CASE("cli: every verb has a summary and an example that begins with its name", "[cli]") {
  for (const VerbInfo& verb : verbs()) {
    INFO(verb.name);
    CHECK_FALSE(verb.summary.empty());
    CHECK(verb.examples.find("  halfbyte " + std::string(verb.name) + " ") == 0);
  }
}

TEST_CASE("cli: sizes with and without units", "[cli]") {
  const std::vector<std::pair<std::string, std::uint64_t>> sizes = {
      {"1", 1},
      {"65536", 65536},
      {"300MB", 300'000'000},
      {"300 mb", 300'000'000},
      {"256MiB", 1 << 28},
      {"1GiB", 1 << 30},
      {"1gb", 1'000'000'000},
      {"7 B", 7},
      {"2kB", 2000},
      {"2KiB", 2048},
      {"3TB", 3'000'000'000'000},
      {"8388607TiB", 8388607ULL << 40},
  };
  for (auto [text, bytes] : sizes) {
    INFO(text);
    CHECK(byte_size().problem_with(text).empty());
    CHECK(parse_bytes(text) == bytes);
  }
  for (std::string text : {"", "0", "0MB", "MB", "-1", "1.5GB", "1 M B", "1QB", "8388608TiB", "99999999999999999999"}) {
    INFO(text);
    CHECK_FALSE(byte_size().problem_with(text).empty());
  }
}

TEST_CASE("cli: text is broken where a reader expects it", "[cli]") {
  using Lines = std::vector<std::string>;
  CHECK(wrapped("", 10) == Lines{""});
  CHECK(wrapped("one two three", 8) == Lines{"one two", "three"});
  CHECK(wrapped("one two three", 13) == Lines{"one two three"});
  CHECK(wrapped("model.layers.0.mlp", 9) == Lines{"model.", "layers.0.", "mlp"});
  CHECK(wrapped("abcdefgh", 3) == Lines{"abc", "def", "gh"});
  CHECK(wrapped("\xC3\xA9\xC3\xA9\xC3\xA9", 2) == Lines{"\xC3\xA9\xC3\xA9", "\xC3\xA9"});
  CHECK(with_indent("  a  ", "one two three", 5, 12) == "  a  one two\n     three");
  CHECK(wrapped_command("  x --a 'b c d' --e", 16) == "  x --a \\\n      'b c d' \\\n      --e");
  for (std::size_t columns = 1; columns < 60; ++columns) {
    for (const std::string& line : wrapped("a few words, and model.layers.0.self_attn.q_proj.weight", columns))
      CHECK(columns_of(line) <= columns);
  }
}

TEST_CASE("cli: a progress line has one width", "[cli]") {
  CHECK(progress_line("quantize", ProgressUnit::kBytes, 1'000'000'000, 4'000'000'000, 50e6) ==
        "quantize [#######.......................]  25%  50.0 MB/s      1:00 left");
  CHECK(progress_line("quantize", ProgressUnit::kBytes, 0, 4'000'000'000, std::nullopt) ==
        "quantize [..............................]   0%                 -:-- left");
  CHECK(progress_line("prompt", ProgressUnit::kTokens, 1024, 4096, 512) ==
        "prompt [#######.......................]  25%     512 tok/s      0:06 left");
  CHECK(progress_line("prompt", ProgressUnit::kTokens, 1024, 4096, 0.5) ==
        "prompt [#######.......................]  25%     0.5 tok/s   1:42:24 left");
  for (const ProgressUnit unit : {ProgressUnit::kBytes, ProgressUnit::kTokens}) {
    const std::size_t width = progress_line("x", unit, 0, 1, std::nullopt).size();
    CHECK(width + 11 < 80);  // room for any verb's name
    for (const double rate : {0.0, 1e-9, 1.0, 999.0, 12345.0, 9.99e8, 1.5e11}) {
      for (const std::uint64_t done : {0U, 999U, 4'000'000'000U}) {
        INFO(rate << " " << done);
        CHECK(progress_line("x", unit, done, 4'000'000'000, rate).size() == width);
      }
    }
  }
}
