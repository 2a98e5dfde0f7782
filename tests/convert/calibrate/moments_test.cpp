#include "convert/calibrate/moments.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>

#include "convert/calibrate/layer_runner.h"
#include "loader/files/checkpoint.h"
#include "tests/catch.h"
#include "tests/places.h"

using namespace halfbyte;
using namespace halfbyte::convert::calibrate;

namespace {

constexpr std::int64_t kBatches = 3, kTokens = 40, kColumns = 1100;  // three panels

at::Tensor random(std::uint64_t seed) {
  return at::randn({kTokens, kColumns}, at::detail::createCPUGenerator(seed), at::TensorOptions().dtype(at::kFloat));
}

InputRows batch(std::int64_t number) {
  return {random(static_cast<std::uint64_t>(number)), random(static_cast<std::uint64_t>(100 + number))};
}

using Bytes = std::vector<std::byte>;

// What one of the runs sums up; `loads`: how often it asked for a batch.
Moments summed(const models::Linear& linear, SumShare share, int& loads) {
  Moments out(at::kFloat, share);
  for (std::int64_t number = 0; number < kBatches; ++number) {
    const auto load = [&loads, number] {
      ++loads;
      return batch(number);
    };
    out.add(linear, KeptInput{number, kTokens, kColumns, true, load});
  }
  return out;
}

Bytes given_by(const Moments& moments) {
  Bytes out;
  moments.give([&](std::span<const std::byte> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); });
  return out;
}

void take(Moments& moments, int other, const Bytes& given) {
  std::size_t at = 0;
  moments.take(other, [&](std::span<std::byte> out) {
    REQUIRE(out.size() <= given.size() - at);
    std::memcpy(out.data(), given.data() + at, out.size());
    at += out.size();
  });
  CHECK(at == given.size());
}

}  // namespace

TEST_CASE("moments: runs that share sums have them whole, and load no more inputs than their panels need",
          "[calibrate][parts]") {
  const files::Checkpoint source = files::open_checkpoint(tests::data("tiny-llama"));
  LayerRunner runner(source, DtypePolicy::float32());
  runner.load(0);
  const models::Linear& linear = *runner.linears().front();
  const int count = GENERATE(2, 5, 8);
  INFO(count);
  int loads = 0;
  const Moments whole = summed(linear, {}, loads);
  CHECK(loads == kBatches);
  std::vector<Moments> runs;
  std::vector<Bytes> given;
  for (int run = 0; run < count; ++run) {
    loads = 0;
    given.push_back(given_by(runs.emplace_back(summed(linear, {run, count}, loads))));
    CHECK(loads == (given.back().empty() ? 0 : kBatches));
  }
  // Three panels of the sums, three of the drift.
  CHECK(std::ranges::count_if(given, [](const Bytes& each) { return !each.empty(); }) == std::min(count, 6));
  for (int run = 0; run < count; ++run) {
    Moments& own = runs[static_cast<std::size_t>(run)];
    for (int other = 0; other < count; ++other)
      if (other != run) take(own, other, given[static_cast<std::size_t>(other)]);
    CHECK(own.parts().front().moments().equal(whole.parts().front().moments()));
    CHECK(own.parts().front().drift.equal(whole.parts().front().drift));
    CHECK(own.parts().front().tokens == kBatches * kTokens);
  }
}
