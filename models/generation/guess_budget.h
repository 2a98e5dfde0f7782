// How many guessed tokens are worth verifying in a pass: from what passes took, and how often guesses were right so
// far. Needs no LibTorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace halfbyte::models {

class GuessBudget {
 public:
  // Guesses in a pass at most; it has one row more.
  static constexpr std::size_t kMost = 7;

  // Guesses come in kinds, of which some are right more often. `trust`: of each kind the probability that a guess is
  // right where the one before was, until it is known.
  explicit GuessBudget(std::span<const double> trust);

  // Of a kind, which take `seconds` each to make. 0: they would not pay.
  std::size_t best(std::size_t kind, std::size_t most, double seconds = 0) const;
  // Of `guesses` verified ones the first `right` were.
  void verified(std::size_t kind, std::size_t guesses, std::size_t right);
  // best() said 0: what is known of the kind becomes less certain, so that it is tried again some time.
  void declined(std::size_t kind);
  // A pass of so many rows took so long.
  void passed(std::size_t rows, double seconds);

 private:
  double cost(std::size_t rows) const;
  std::vector<double> trust_, known_;
  std::array<double, kMost + 2> seconds_ = {};  // of passes by their rows; 0: not known
};

}  // namespace halfbyte::models
