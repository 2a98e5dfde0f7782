// A checkpoint of a family that halfbyte does not know, or of none, loads by name and says so.
#include "tests/catch.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include <torch/nn/modules/linear.h>

#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>
#include <halfbyte/load_state.h>
#include <halfbyte/restore_into.h>

#include "tests/places.h"

namespace halfbyte {
namespace {

// Two matrices and a buffer, 64 x 64 bfloat16 of ones and 4 int64.
void write_model(const std::filesystem::path& directory, const std::string& config) {
  std::filesystem::create_directories(directory);
  if (!config.empty()) std::ofstream(directory / "config.json") << config;
  constexpr int kBytes = 64 * 64 * 2;
  const nlohmann::json header = {
      {"mixer.weight", {{"dtype", "BF16"}, {"shape", {64, 64}}, {"data_offsets", {0, kBytes}}}},
      {"embed.weight", {{"dtype", "BF16"}, {"shape", {64, 64}}, {"data_offsets", {kBytes, 2 * kBytes}}}},
      {"positions", {{"dtype", "I64"}, {"shape", {4}}, {"data_offsets", {2 * kBytes, 2 * kBytes + 32}}}}};
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream out(directory / "model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << text;
  for (int i = 0; i < 2 * 64 * 64; ++i) out.write("\x80\x3f", 2);
  out << std::string(32, '\1');
}

bool has_note(const LoadReport& report, const std::string& part) {
  return std::ranges::any_of(report.notes, [&](const std::string& note) { return note.find(part) != note.npos; });
}

struct Case {
  const char* config;
  const char* note;
};
constexpr Case kCases[] = {{R"({"model_type": "made_up"})", "the family \"made_up\" is not known"},
                           {R"({"architectures": ["MadeUpForCausalLM"]})", "\"MadeUpForCausalLM\" is not known"},
                           {"{}", "the family of this model is not known"},
                           {"", "there is no config.json"}};

TEST_CASE("load_state gives every tensor of an unknown family by name, and says that it is unknown",
          "[state][family]") {
  for (const auto& [config, note] : kCases) {
    INFO(config);
    tests::Scratch scratch;
    write_model(scratch / "source", config);
    convert::quantize(scratch / "source", scratch / "packed", {});
    const State state = load_state(scratch / "packed");
    CHECK(state.size() == 3);
    CHECK(has_note(state.report, note));
    REQUIRE(state.at("mixer.weight").is_low_bit());
    CHECK(state.at("mixer.weight").dequantize().equal(at::ones({64, 64}, at::kBFloat16)));
    CHECK(state.at("embed.weight").dense().scalar_type() == at::kBFloat16);
    CHECK(state.at("positions").dense().equal(at::full({4}, 0x0101010101010101, at::kLong)));
  }
}

TEST_CASE("a host's own module takes an unknown family's weights", "[restore][family]") {
  tests::Scratch scratch;
  write_model(scratch / "source", kCases[0].config);
  convert::quantize(scratch / "source", scratch / "packed", {});
  torch::nn::Linear mixer(torch::nn::LinearOptions(64, 64).bias(false));
  restore_into(*mixer, scratch / "packed", {.rename = [](const std::string& name) {
    return name.starts_with("mixer.") ? name.substr(6) : std::string();
  }});
  CHECK(mixer->weight.equal(at::ones({64, 64})));
}

TEST_CASE("load_low_bit says why it cannot run an unknown family, and what can be done with it", "[load][family]") {
  for (const auto& [config, note] : kCases) {
    INFO(config);
    tests::Scratch scratch;
    write_model(scratch / "source", config);
    try {
      load_low_bit(scratch / "source");
      FAIL("not refused");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kUnsupported);
      CHECK_THAT(error.what(),
                 Catch::Contains("not known") && Catch::Contains("can be run: llama") && Catch::Contains("load_state"));
    }
  }
}

}  // namespace
}  // namespace halfbyte
