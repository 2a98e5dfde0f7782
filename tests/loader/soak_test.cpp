// A process that loads, generates and unloads for ever needs no more memory, descriptors or mappings than after a few
// times.
#include "tests/catch.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include <halfbyte/convert.h>
#include <halfbyte/load_low_bit.h>

#include "loader/files/platform.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

constexpr int kWarmUp = 30;
constexpr int kCycles = 60;
constexpr int kTokens = 10;  // a cycle
constexpr std::int64_t kMostGrowthBytes = 1 << 20;

// For longer runs than everybody's.
int cycles() {
  const char* wanted = std::getenv("HALFBYTE_CYCLES");
  return wanted ? std::atoi(wanted) : kCycles;
}

std::int64_t count_lines(const char* path) {
  std::ifstream file(path);
  std::int64_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

struct Held {
  std::int64_t rss_bytes, descriptors, maps;
};

Held held() {
  std::int64_t descriptors = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++descriptors;
  return {static_cast<std::int64_t>(files::current_rss_bytes()), descriptors, count_lines("/proc/self/maps")};
}

// Returns how many tokens came.
std::size_t cycle(const std::filesystem::path& checkpoint) {
  const Model model = load_low_bit(checkpoint);
  const auto out = model.generate({{1, 306, 465}}, {.max_gen_len = kTokens, .temperature = 0, .ignore_eos = true});
  return out.at(0).tokens.size();
}

TEST_CASE("a process that loads and unloads again and again holds on to nothing", "[loader]") {
  tests::Scratch scratch;
  convert::quantize(tests::data("tiny-llama"), scratch / "m", {.scheme = "sym_int4"});
  for (int i = 0; i < kWarmUp; ++i) cycle(scratch / "m");
  const Held before = held();
  std::size_t tokens = 0;
  Held after = before;
  for (int i = 1; i <= cycles(); ++i) {
    tokens += cycle(scratch / "m");
    if (i % 1000 != 0 && i != cycles()) continue;
    after = held();
    std::printf("%d cycles, %zu tokens: %lld KiB (%+lld), %lld descriptors, %lld maps\n", i, tokens,
                static_cast<long long>(after.rss_bytes / 1024),
                static_cast<long long>((after.rss_bytes - before.rss_bytes) / 1024),
                static_cast<long long>(after.descriptors), static_cast<long long>(after.maps));
    std::fflush(stdout);
  }
  CHECK(tokens == static_cast<std::size_t>(cycles()) * kTokens);
  CHECK(after.descriptors == before.descriptors);
  CHECK(after.maps <= before.maps);
  CHECK(after.rss_bytes <= before.rss_bytes + kMostGrowthBytes);
}

}  // namespace
}  // namespace halfbyte
