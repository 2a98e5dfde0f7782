#include "convert/budget/knapsack.h"

#include <limits>
#include <random>

#include "tests/catch.h"

using namespace halfbyte::convert::budget;

namespace {

struct Total {
  std::uint64_t bytes = 0;
  double loss = 0;
};

Total total_of(const std::vector<Item>& items, const std::vector<std::size_t>& picks) {
  Total out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    out.bytes += items[i][picks[i]].bytes;
    out.loss += items[i][picks[i]].loss;
  }
  return out;
}

// The least loss within the budget, of all that can be picked from `item` on.
double least_loss(const std::vector<Item>& items, std::uint64_t budget, std::size_t item = 0) {
  if (item == items.size()) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const Choice& choice : items[item]) {
    if (choice.bytes > budget) continue;
    least = std::min(least, choice.loss + least_loss(items, budget - choice.bytes, item + 1));
  }
  return least;
}

// Losses mostly fall with bytes, as those of tensors do, and sometimes not.
std::vector<Item> random_items(std::mt19937& random, std::size_t count, std::uint64_t unit) {
  std::vector<Item> out(count);
  for (Item& item : out) {
    const std::uint64_t size = 1 + random() % 9;
    const double sensitivity = 1.0 + static_cast<double>(random() % 100);
    for (std::uint64_t way = 0, ways = 1 + random() % 4; way < ways; ++way) {
      const double noise = 0.5 + static_cast<double>(random() % 1000) / 1000;
      item.push_back(
          {size * unit * (4 + 2 * way) + random() % unit, sensitivity * noise / static_cast<double>(1 << way)});
    }
  }
  return out;
}

}  // namespace

TEST_CASE("a budget is spent as well as by trying everything", "[budget]") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const std::vector<Item> items = random_items(random, 1 + random() % 7, 16);
    const std::uint64_t least = least_bytes(items), budget = least + random() % (least + 1);
    const auto picks = pick(items, budget);
    REQUIRE(picks);
    const Total total = total_of(items, *picks);
    CHECK(total.bytes <= budget);
    CHECK(total.loss <= least_loss(items, budget) * (1 + 1e-12));
  }
}

TEST_CASE("what cannot be met is not picked", "[budget]") {
  const std::vector<Item> items = {{{10, 1.0}, {20, 0.5}}, {{7, 3.0}}};
  CHECK(least_bytes(items) == 17);
  CHECK_FALSE(pick(items, 16));
  CHECK(pick(items, 17) == std::vector<std::size_t>{0, 0});
  CHECK(pick(items, 26) == std::vector<std::size_t>{0, 0});
  CHECK(pick(items, 27) == std::vector<std::size_t>{1, 0});
  CHECK(pick({}, 0) == std::vector<std::size_t>{});
}

TEST_CASE("many tensors: more bytes never lose more, and the budget holds", "[budget]") {
  std::mt19937 random(11);
  const std::vector<Item> items = random_items(random, 400, 1 << 16);
  const std::uint64_t least = least_bytes(items);
  double before = std::numeric_limits<double>::infinity();
  for (std::uint64_t budget = least; budget < 2 * least; budget += least / 8) {
    const Total total = total_of(items, *pick(items, budget));
    CHECK(total.bytes <= budget);
    CHECK(total.loss <= before);
    before = total.loss;
  }
}
