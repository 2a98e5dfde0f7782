// A calibrated conversion that several parts share.
#include <algorithm>
#include <thread>

#include <nlohmann/json.hpp>

#include <halfbyte/calibrate.h>

#include "convert/synth.h"
#include "tests/catch.h"
#include "tests/loader/files/scratch.h"
#include "tests/places.h"

using namespace halfbyte;
using convert::QuantizeOptions;
using convert::QuantizeSummary;
using halfbyte::testing::check_error;
using halfbyte::testing::contents_of;
using halfbyte::testing::names_in;
using halfbyte::testing::Scratch;

namespace {

struct Case {
  std::string model = "";  // a folder of the tests' data, or a path
  std::string method = "gptaq";
  std::int64_t sequences = 80;  // of 32 tokens: the layers take 32 of them at once
  QuantizeOptions options = {.group_size = 32};
};

convert::CalibrationTokens tokens_of(const Case& one) {
  convert::CalibrationTokens out{{}, "00000000000000000000000000000000"};
  std::uint64_t number = 7;
  for (std::int64_t i = 0; i < one.sequences; ++i) {
    std::vector<std::int64_t>& sequence = out.sequences.emplace_back();
    for (int k = 0; k < 32; ++k) {
      number = number * 6364136223846793005u + 1442695040888963407u;
      sequence.push_back(static_cast<std::int64_t>(3 + (number >> 33) % 100));
    }
  }
  return out;
}

struct Outcome {
  QuantizeSummary summary;
  std::string error;
};

// One part, or all of it. `layers`: after so many it is stopped; 0: it is not.
Outcome run(const Case& one, const std::filesystem::path& destination, std::optional<convert::WorkPart> part,
            int layers = 0) try {
  std::stop_source stop;
  convert::CalibrateOptions calibrate{.method = one.method};
  calibrate.progress = [&, done = -1](std::uint64_t, std::uint64_t) mutable {
    if (++done == layers && layers > 0) stop.request_stop();
  };
  QuantizeOptions options = one.options;
  options.threads = 1;
  options.part = part;
  options.part_timeout = 60;
  options.calibrator = convert::make_calibrator(tokens_of(one), calibrate);
  options.stop = stop.get_token();
  return {convert::quantize(tests::data(one.model), destination, options), ""};
} catch (const std::exception& error) {
  return {{}, error.what()};
}

// All at the same time. `stopped`: one from 0 that is stopped after so many layers.
std::vector<Outcome> run_parts(const Case& one, const std::filesystem::path& destination, int count, int stopped = -1,
                               int layers = 0) {
  std::vector<Outcome> out(static_cast<std::size_t>(count));
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      out[static_cast<std::size_t>(i)] =
          run(one, destination, convert::WorkPart{i + 1, count}, i == stopped ? layers : 0);
    });
  }
  threads.clear();
  return out;
}

void check_same(const Case& one, const Scratch& scratch, int count) {
  const std::vector<Outcome> parts = run_parts(one, scratch / "dst", count);
  for (const Outcome& each : parts) CHECK(each.error == "");
  CHECK(parts.front().summary.is_whole);  // which says what became of all
  CHECK(std::ranges::count_if(parts, [](const Outcome& each) { return each.summary.is_whole; }) == 1);
  CHECK(names_in(scratch.path()) == std::vector<std::string>{"dst", "wanted"});
  CHECK(contents_of(scratch / "dst") == contents_of(scratch / "wanted"));
}

// In a thread as those of parts are.
void run_alone(const Case& one, const Scratch& scratch) {
  Outcome alone;
  std::jthread([&] { alone = run(one, scratch / "wanted", std::nullopt); }).join();
  REQUIRE(alone.error == "");
}

}  // namespace

TEST_CASE("calibrated parts: they write the bytes of a single run", "[calibrate][parts]") {
  const Case one{.model = GENERATE("tiny-llama", "families/mixtral", "families/qwen3-next"),
                 .method = GENERATE("search", "gptq", "gptaq")};
  INFO(one.model << ", " << one.method);
  const Scratch scratch;
  run_alone(one, scratch);
  check_same(one, scratch, 2);
  std::filesystem::remove_all(scratch / "dst");
  check_same(one, scratch, 3);
}

// Inputs of three panels, weights of three blocks of rows: each is divided among parts.
TEST_CASE("calibrated parts: sums and matrices that are divided", "[calibrate][parts]") {
  const Scratch scratch;
  const nlohmann::json config{{"architectures", {"LlamaForCausalLM"}},
                              {"model_type", "llama"},
                              {"hidden_size", 192},
                              {"intermediate_size", 1088},
                              {"num_attention_heads", 3},
                              {"num_key_value_heads", 3},
                              {"num_hidden_layers", 2},
                              {"vocab_size", 128},
                              {"max_position_embeddings", 64},
                              {"rms_norm_eps", 1e-5},
                              {"rope_theta", 10000.0},
                              {"hidden_act", "silu"},
                              {"tie_word_embeddings", false},
                              {"torch_dtype", "bfloat16"}};
  const Scratch source;
  testing::write_text(source / "config.json", config.dump());
  convert::synth(source / "model", {.config = source / "config.json"});
  Case one = GENERATE(Case{.method = "search"}, Case{.method = "gptq"}, Case{.method = "gptaq"},
                      Case{.options = {.scheme = "asym_int4", .group_size = 32}},
                      Case{.options = {.scheme = "hb4", .group_size = 32, .halfbyte_only = true}},
                      Case{.method = "gptq", .options = {.scheme = "nf4", .group_size = 64, .nested_scales = true}});
  INFO(one.method << ", " << one.options.scheme.value_or(""));
  one.model = (source / "model").string();
  run_alone(one, scratch);
  check_same(one, scratch, 3);
  std::filesystem::remove_all(scratch / "dst");
  check_same(one, scratch, 2);
}

TEST_CASE("calibrated parts: whatever is stored, and however few sequences there are", "[calibrate][parts]") {
  const Case one =
      GENERATE(Case{.model = "tiny-llama", .sequences = 20},
               Case{.model = "tiny-llama", .options = {.scheme = "nf4", .group_size = 64, .nested_scales = true}},
               Case{.model = "tiny-llama", .options = {.scheme = "hb4", .group_size = 32, .halfbyte_only = true}},
               Case{.model = "tiny-llama", .options = {.scheme = "asym_int4", .group_size = 32}},
               Case{.model = "families/granitemoe",
                    .sequences = 33,
                    .options = {.scheme = "fp4", .group_size = 32, .halfbyte_only = true}});
  INFO(one.model << ", " << one.options.scheme.value_or(""));
  const Scratch scratch;
  run_alone(one, scratch);
  check_same(one, scratch, 2);
}

TEST_CASE("calibrated parts: one that is stopped ends the others, and the same command goes on", "[calibrate][parts]") {
  const Case one{.model = "tiny-llama", .method = GENERATE("gptq", "gptaq")};
  const int stopped = GENERATE(0, 1);
  const Scratch scratch;
  run_alone(one, scratch);
  const std::vector<Outcome> parts = run_parts(one, scratch / "dst", 2, stopped, 1);
  const auto own = static_cast<std::size_t>(stopped), other = 1 - own;
  CHECK(parts[own].error.find("stopped; ") == 0);
  CHECK(parts[other].error.find("part " + std::to_string(stopped + 1) + " of 2 ended before it was done") !=
        std::string::npos);
  for (const Outcome& each : parts) CHECK(each.error.find("is kept, the same command goes on") != std::string::npos);
  const auto journal = [&](int part) {
    return testing::read_text(scratch / "dst.partial" / ("part-" + std::to_string(part) + "-of-2") / "journal");
  };
  CHECK(std::ranges::count(journal(stopped + 1), '\n') == 2);  // who they are, and a layer
  check_same(one, scratch, 2);
}

TEST_CASE("calibrated parts: what they began goes on in other parts, and in one run", "[calibrate][parts]") {
  const Case one{.model = "tiny-llama"};
  const bool is_alone = GENERATE(false, true);
  const Scratch scratch;
  run_alone(one, scratch);
  run_parts(one, scratch / "dst", 2, 1, 1);
  if (!is_alone) return check_same(one, scratch, 3);
  Case resumed = one;
  resumed.options.resume = true;
  Outcome done;
  std::jthread([&] { done = run(resumed, scratch / "dst", std::nullopt); }).join();
  CHECK(done.error == "");
  CHECK(contents_of(scratch / "dst") == contents_of(scratch / "wanted"));
}

TEST_CASE("calibrated parts: once all codes are chosen, one that died is run again alone", "[calibrate][parts]") {
  Case one{.model = "tiny-llama", .method = "search"};
  const Scratch scratch;
  run_alone(one, scratch);
  std::vector<Outcome> parts(2);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      Case part = one;
      if (i == 1) part.options.progress = [](auto, auto) { throw Error(ErrorCode::kNoResources, "no room"); };
      parts[static_cast<std::size_t>(i)] = run(part, scratch / "dst", convert::WorkPart{i + 1, 2});
    });
  }
  threads.clear();
  CHECK(parts[1].error.find("no room; ") == 0);
  CHECK(parts[0].error == "");
  CHECK(parts[0].summary.parts_left == std::vector<int>{2});
  for (const char* part : {"part-1-of-2", "part-2-of-2"}) {  // what they gave each other is gone
    const std::vector<std::string> left = names_in(scratch / "dst.partial" / part / "calibration");
    CHECK(left == std::vector<std::string>{"alive", "said", "states-0", "states-1"});
  }
  Outcome again;
  std::jthread([&] { again = run(one, scratch / "dst", convert::WorkPart{2, 2}); }).join();
  CHECK(again.error == "");
  CHECK(again.summary.is_whole);
  CHECK(contents_of(scratch / "dst") == contents_of(scratch / "wanted"));
}

TEST_CASE("calibrated parts: those of another calibration are refused", "[calibrate][parts]") {
  const Case one{.model = "tiny-llama"};
  const Scratch scratch;
  run_parts(one, scratch / "dst", 2, 1, 1);
  Case other = one;
  other.method = "gptq";
  const Outcome refused = run(other, scratch / "dst", convert::WorkPart{1, 2});
  CHECK(refused.error.find(
            "is the beginning of another conversion (conversion: calibration: method is \"gptaq\" there") !=
        std::string::npos);
}
