// Many threads, many models, and what is left when they are gone: nothing.
#include "tests/catch.h"

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <halfbyte/load_low_bit.h>
#include <halfbyte/load_state.h>

#include "loader/files/platform.h"
#include "tests/loader/quantized.h"
#include "tests/places.h"

namespace halfbyte {
namespace {

// Two prompts: prefill, a batch of rows of different lengths, decode. Sampled, so that every thread's seed matters.
std::vector<TokenIds> generate(const Model& model, std::uint64_t seed, std::int64_t tokens = 24) {
  std::vector<TokenIds> out;
  for (Generation& generation : model.generate({{1, 300, 301, 302, 303, 304, 305, 306, 307, 308}, {1, 500}},
                                               {.max_gen_len = tokens, .seed = seed, .ignore_eos = true})) {
    out.push_back(std::move(generation.tokens));
  }
  return out;
}

constexpr std::uint64_t kThreads = 4;
constexpr int kRounds = 5;

// Every thread calls generate on what `model_of` gives it; the results by thread and round.
template <class ModelOf>
std::vector<std::vector<std::vector<TokenIds>>> generate_in_threads(ModelOf model_of) {
  std::vector<std::vector<std::vector<TokenIds>>> results(kThreads);
  std::vector<std::jthread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) results[t].push_back(generate(model_of(t), t));
    });
  }
  threads.clear();
  return results;
}

TEST_CASE("four threads on one model, on two, and on one each get what one thread gets", "[lifetime]") {
  const Model low_bit = load_low_bit(tests::quantized_tiny_llama());
  const Model half = load_low_bit(tests::data("tiny-llama"), {.dtype = DtypePolicy::half()});
  const auto check = [&](const auto& results, const auto& model_of) {
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      const std::vector<TokenIds> serial = generate(model_of(t), t);
      REQUIRE(results[t].size() == kRounds);
      for (const auto& result : results[t]) CHECK(result == serial);
    }
  };
  const auto one = [&](std::uint64_t) { return low_bit; };
  const auto two = [&](std::uint64_t t) { return t % 2 ? low_bit : half; };
  const auto own = [&](std::uint64_t t) {
    return t % 2 ? load_low_bit(tests::quantized_tiny_llama())
                 : load_low_bit(tests::data("tiny-llama"), {.dtype = DtypePolicy::half()});
  };
  check(generate_in_threads(one), one);
  check(generate_in_threads(two), two);
  check(generate_in_threads(own), two);
  CHECK(generate(low_bit, 0) != generate(low_bit, 1));
}

// Mappings of files under this path that the process has; nothing where the system does not say.
std::optional<int> mappings_of(const std::filesystem::path& path) {
  std::ifstream maps("/proc/self/maps");
  if (!maps) return std::nullopt;
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(path.string()) != std::string::npos;
  return count;
}

TEST_CASE("a model, a state and their tensors hold the mapping as long as they live, and no longer", "[lifetime]") {
  if (!mappings_of("/")) HALFBYTE_SKIP("this system does not list mappings");
  CHECK(*mappings_of(tests::quantized_tiny_llama()) == 0);
  {
    const Model model = load_low_bit(tests::quantized_tiny_llama());
    const Model copy = model;
    CHECK(*mappings_of(tests::quantized_tiny_llama()) > 0);
  }
  CHECK(*mappings_of(tests::quantized_tiny_llama()) == 0);
  at::Tensor last = load_state(tests::quantized_tiny_llama()).at("model.norm.weight").dense();
  CHECK(*mappings_of(tests::quantized_tiny_llama()) > 0);
  last = at::Tensor();
  CHECK(*mappings_of(tests::quantized_tiny_llama()) == 0);
}

void cycle(const std::filesystem::path& path, const DtypePolicy& policy) {
  const Model model = load_low_bit(path, {.dtype = policy});
  generate(model, 3, 4);
}

TEST_CASE("200 cycles of loading, generating and unloading do not make the process grow", "[lifetime]") {
  constexpr int kWarmUp = 20;
  constexpr int kCycles = 200;
  constexpr double kBoundBytes = 1e6;
  struct Row {
    std::filesystem::path path;
    DtypePolicy policy;
  };
  for (const Row& row :
       {Row{tests::quantized_tiny_llama(), DtypePolicy::amp()}, Row{tests::data("tiny-llama"), DtypePolicy::half()}}) {
    for (int i = 0; i < kWarmUp; ++i) cycle(row.path, row.policy);
    const auto before = static_cast<double>(files::current_rss_bytes());
    REQUIRE(before > 0);
    for (int i = 0; i < kCycles; ++i) cycle(row.path, row.policy);
    const double growth = static_cast<double>(files::current_rss_bytes()) - before;
    INFO(row.path << " " << row.policy.name() << " grew by " << growth << " bytes");
    if (std::getenv("HALFBYTE_PRINT_GROWTH")) WARN(row.policy.name() << ": " << growth << " bytes");
    CHECK(growth < kBoundBytes);  // measured: 0.07 MB and less
  }
}

TEST_CASE("threads that come and go leave nothing behind", "[lifetime]") {
  const Model model = load_low_bit(tests::quantized_tiny_llama());
  const auto round = [&] {
    std::jthread thread([&] { generate(model, 1, 4); });
    thread.join();
  };
  for (int i = 0; i < 20; ++i) round();
  const auto before = static_cast<double>(files::current_rss_bytes());
  for (int i = 0; i < 200; ++i) round();
  const double growth = static_cast<double>(files::current_rss_bytes()) - before;
  if (std::getenv("HALFBYTE_PRINT_GROWTH")) WARN("threads: " << growth << " bytes");
  CHECK(growth < 1e6);  // measured: 0.12 MB
}

}  // namespace
}  // namespace halfbyte
