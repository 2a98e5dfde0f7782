// Tables of cosines and sines: against the formula in double precision, however many positions are asked for.
#include "models/sessions/rotary_tables.h"

#include <cmath>
#include <vector>

#include "tests/catch.h"

namespace halfbyte::models {
namespace {

RopeConfig rope_of(RopeType type) {
  RopeConfig rope;
  rope.type = type;
  rope.rotary_dim = 8;
  rope.theta = 10000;
  rope.factor = 4;
  rope.original_max_position_embeddings = 64;
  rope.attention_factor = 1.25;
  return rope;
}

void check_row(const RotaryRows& rows, std::int64_t row, std::int64_t position, const std::vector<float>& frequencies,
               double factor) {
  for (std::int64_t pair = 0; pair < rows.pairs; ++pair) {
    const double angle = static_cast<float>(position) * frequencies[static_cast<std::size_t>(pair)];
    const auto at = static_cast<std::size_t>(row * rows.pairs + pair);
    CHECK(std::abs(rows.cosines[at] - factor * std::cos(angle)) <= 3e-7);
    CHECK(std::abs(rows.sines[at] - factor * std::sin(angle)) <= 3e-7);
  }
}

TEST_CASE("rotary tables: cosines and sines of every position, whoever asks for more", "[rotary]") {
  const RotaryTables tables(rope_of(RopeType::kLinear));
  const auto some = tables.rows(3);
  CHECK(tables.rows(200) == some);  // there is one, of more than was asked for
  const auto all = tables.rows(5000);
  CHECK(all->positions >= 5000);
  for (const std::int64_t position : {0, 1, 63, 64, 255, 4999})
    check_row(*all, position, position, tables.frequencies(), 1.25);
  for (const std::int64_t position : {0, 255}) check_row(*some, position, position, tables.frequencies(), 1.25);
  for (std::int64_t pair = 0; pair < 4; ++pair) {
    const double base = std::pow(10000.0, -2.0 * static_cast<double>(pair) / 8.0);
    CHECK(tables.frequencies()[static_cast<std::size_t>(pair)] == Approx(base / 4).epsilon(1e-6));
  }
}

TEST_CASE("rotary tables: where frequencies depend on the length, a part of a sequence turns by that of all",
          "[rotary]") {
  const RotaryTables tables(rope_of(RopeType::kDynamic));
  const RotaryRows part = tables.rows(90, 7, 100);
  CHECK(part.positions == 7);
  for (std::int64_t row = 0; row < 7; ++row)
    check_row(part, row, 90 + row, rotary_frequencies(tables.config(), 100), 1.25);
  CHECK(rotary_frequencies(tables.config(), 100)[3] < rotary_frequencies(tables.config(), 64)[3]);
}

}  // namespace
}  // namespace halfbyte::models
