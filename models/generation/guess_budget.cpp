#include "models/generation/guess_budget.h"

#include <algorithm>
#include <limits>

namespace halfbyte::models {
namespace {

// Of what is known, how much the next observation counts.
constexpr double kNewTrust = 1.0 / 8, kNewSeconds = 1.0 / 8;
// How much of it is forgotten while it is not used.
constexpr double kForgottenTrust = 1.0 / 64, kForgottenSeconds = 1.0 / 512;
// What a row more adds to a pass of one, as long as nothing is known.
constexpr double kRow = 0.15;
// What guessing must gain at least, beyond the noise of a clock.
constexpr double kGain = 1.02;

double usual(std::size_t rows) { return 1.0 + kRow * static_cast<double>(rows - 1); }

void approach(double& value, double target, double step) { value += (target - value) * step; }

}  // namespace

GuessBudget::GuessBudget(std::span<const double> trust)
    : trust_(trust.begin(), trust.end()), known_(trust.begin(), trust.end()) {}

// A pass of sizes that were not seen costs what it usually does beside those that were.
double GuessBudget::cost(std::size_t rows) const {
  if (seconds_[rows] > 0) return seconds_[rows];
  double one = std::numeric_limits<double>::infinity();
  for (std::size_t i = 1; i < seconds_.size(); ++i) {
    if (seconds_[i] > 0) one = std::min(one, seconds_[i] / usual(i));
  }
  return one < std::numeric_limits<double>::infinity() ? one * usual(rows) : usual(rows);
}

std::size_t GuessBudget::best(std::size_t kind, std::size_t most, double seconds) const {
  const double trust = known_[kind];
  double expected = 1, right = 1, best_rate = kGain / cost(1);
  std::size_t out = 0;
  for (std::size_t guesses = 1; guesses <= std::min(most, kMost); ++guesses) {
    right *= trust;
    expected += right;
    const double rate = expected / (cost(guesses + 1) + static_cast<double>(guesses) * seconds);
    if (rate <= best_rate) continue;
    best_rate = rate;
    out = guesses;
  }
  return out;
}

void GuessBudget::verified(std::size_t kind, std::size_t guesses, std::size_t right) {
  for (std::size_t i = 0; i < right; ++i) approach(known_[kind], 1, kNewTrust);
  if (right < guesses) approach(known_[kind], 0, kNewTrust);
}

void GuessBudget::declined(std::size_t kind) { approach(known_[kind], trust_[kind], kForgottenTrust); }

// Sizes that are not used for long are tried again: what a busy machine made slow need not stay so.
void GuessBudget::passed(std::size_t rows, double seconds) {
  if (rows >= seconds_.size()) return;
  if (seconds_[rows] == 0) seconds_[rows] = seconds;
  approach(seconds_[rows], seconds, kNewSeconds);
  for (std::size_t i = 1; i < seconds_.size(); ++i) {
    if (i != rows && seconds_[i] > 0) approach(seconds_[i], seconds_[rows] / usual(rows) * usual(i), kForgottenSeconds);
  }
}

}  // namespace halfbyte::models
