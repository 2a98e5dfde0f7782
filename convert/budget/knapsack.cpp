#include "convert/budget/knapsack.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace halfbyte::convert::budget {
namespace {

// Partial sums that are gone on with after each item, of all items together: what they take is some tens of MB.
constexpr std::size_t kMostSums = std::size_t{1} << 21;
constexpr std::size_t kMostSumsAnItem = 8192;
constexpr std::size_t kLeastSumsAnItem = 256;

double as_double(std::uint64_t value) { return static_cast<double>(value); }

// Of an item: those on the lower convex hull of loss over bytes, from the smallest on.
std::vector<std::size_t> hull_of(const Item& item) {
  std::vector<std::size_t> order(item.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return item[a].bytes != item[b].bytes ? item[a].bytes < item[b].bytes : item[a].loss < item[b].loss;
  });
  const auto slope = [&](std::size_t from, std::size_t to) {
    return (item[from].loss - item[to].loss) / as_double(item[to].bytes - item[from].bytes);
  };
  std::vector<std::size_t> out;
  for (const std::size_t next : order) {
    if (!out.empty() && item[next].loss >= item[out.back()].loss) continue;
    while (out.size() > 1 && slope(out[out.size() - 2], out.back()) <= slope(out.back(), next)) out.pop_back();
    out.push_back(next);
  }
  return out;
}

// From one choice of an item's hull to the next.
struct Step {
  double gain;  // a byte's
  std::size_t item, from, to;
};

std::vector<Step> steps_of(std::span<const Item> items, const std::vector<std::vector<std::size_t>>& hulls) {
  std::vector<Step> out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    for (std::size_t k = 1; k < hulls[i].size(); ++k) {
      const Choice &from = items[i][hulls[i][k - 1]], &to = items[i][hulls[i][k]];
      out.push_back({(from.loss - to.loss) / as_double(to.bytes - from.bytes), i, hulls[i][k - 1], hulls[i][k]});
    }
  }
  std::ranges::stable_sort(out, std::greater(), &Step::gain);
  return out;
}

double loss_of(std::span<const Item> items, const std::vector<std::size_t>& picks) {
  double out = 0;
  for (std::size_t i = 0; i < items.size(); ++i) out += items[i][picks[i]].loss;
  return out;
}

// A solution along the hulls, and what a byte gains where it ends: the Lagrangian's multiplier.
struct Greedy {
  std::vector<std::size_t> picks;
  double worth = 0;
};

Greedy greedy(std::span<const Item> items, std::uint64_t budget) {
  std::vector<std::vector<std::size_t>> hulls;
  Greedy out;
  std::uint64_t bytes = 0;
  for (const Item& item : items) {
    hulls.push_back(hull_of(item));
    out.picks.push_back(hulls.back().front());
    bytes += item[out.picks.back()].bytes;
  }
  for (const Step& step : steps_of(items, hulls)) {
    const std::uint64_t more = items[step.item][step.to].bytes - items[step.item][step.from].bytes;
    if (out.picks[step.item] != step.from) continue;  // a step before it was too long
    if (bytes + more > budget) {
      out.worth = std::max(out.worth, step.gain);
      continue;
    }
    bytes += more;
    out.picks[step.item] = step.to;
  }
  return out;
}

// The choices of the first items, as what they sum up to, and where they came from.
struct Sum {
  std::uint64_t bytes;
  double loss;
  std::uint32_t before;  // among the sums of one item less
  std::uint32_t pick;
};

class Search {
 public:
  Search(std::span<const Item> items, std::uint64_t budget)
      : items_(items),
        budget_(budget),
        greedy_(greedy(items, budget)),
        most_(std::clamp(kMostSums / std::max<std::size_t>(items.size(), 1), kLeastSumsAnItem, kMostSumsAnItem)),
        best_(loss_of(items, greedy_.picks)),
        least_after_(items.size() + 1),
        bound_after_(items.size() + 1) {
    for (std::size_t i = items.size(); i-- > 0;) {
      double bound = std::numeric_limits<double>::infinity();
      std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
      for (const Choice& choice : items[i]) {
        bound = std::min(bound, choice.loss + greedy_.worth * as_double(choice.bytes));
        least = std::min(least, choice.bytes);
      }
      bound_after_[i] = bound_after_[i + 1] + bound;
      least_after_[i] = least_after_[i + 1] + least;
    }
  }

  std::vector<std::size_t> run() {
    sums_.push_back({{0, 0.0, 0, 0}});
    for (std::size_t i = 0; i < items_.size(); ++i) sums_.push_back(next(i));
    const std::vector<Sum>& last = sums_.back();
    const auto found = std::ranges::min_element(last, {}, &Sum::loss);
    if (found == last.end() || found->loss >= best_) return greedy_.picks;
    std::vector<std::size_t> out(items_.size());
    auto at = static_cast<std::size_t>(found - last.begin());
    for (std::size_t i = items_.size(); i-- > 0;) {
      out[i] = sums_[i + 1][at].pick;
      at = sums_[i + 1][at].before;
    }
    return out;
  }

 private:
  // What a solution that begins so loses at least, by the Lagrangian.
  double bound(const Sum& sum, std::size_t items) const {
    return sum.loss + bound_after_[items] - greedy_.worth * as_double(budget_ - sum.bytes);
  }

  std::vector<Sum> next(std::size_t item) const {
    std::vector<Sum> out;
    for (std::uint32_t before = 0; before < sums_[item].size(); ++before) {
      for (std::uint32_t pick = 0; pick < items_[item].size(); ++pick) {
        const Choice& choice = items_[item][pick];
        const Sum sum{sums_[item][before].bytes + choice.bytes, sums_[item][before].loss + choice.loss, before, pick};
        if (sum.bytes + least_after_[item + 1] > budget_ || bound(sum, item + 1) >= best_) continue;
        out.push_back(sum);
      }
    }
    keep_best_of_their_size(out);
    if (out.size() > most_) keep_most_promising(out, item + 1);
    return out;
  }

  static void keep_best_of_their_size(std::vector<Sum>& sums) {
    std::ranges::stable_sort(
        sums, [](const Sum& a, const Sum& b) { return a.bytes != b.bytes ? a.bytes < b.bytes : a.loss < b.loss; });
    double least = std::numeric_limits<double>::infinity();
    std::erase_if(sums, [&](const Sum& sum) {
      const bool is_beaten = sum.loss >= least;
      least = std::min(least, sum.loss);
      return is_beaten;
    });
  }

  void keep_most_promising(std::vector<Sum>& sums, std::size_t items) const {
    std::ranges::stable_sort(sums, {}, [&](const Sum& sum) { return bound(sum, items); });
    sums.resize(most_);
  }

  std::span<const Item> items_;
  std::uint64_t budget_;
  Greedy greedy_;
  std::size_t most_;
  double best_;                             // the loss of a solution that is known
  std::vector<std::uint64_t> least_after_;  // bytes of the items from there on
  std::vector<double> bound_after_;         // their loss and bytes' worth, at least
  std::vector<std::vector<Sum>> sums_;      // by how many items they are of
};

}  // namespace

std::uint64_t least_bytes(std::span<const Item> items) {
  std::uint64_t out = 0;
  for (const Item& item : items) out += std::ranges::min_element(item, {}, &Choice::bytes)->bytes;
  return out;
}

std::optional<std::vector<std::size_t>> pick(std::span<const Item> items, std::uint64_t budget) {
  if (least_bytes(items) > budget) return std::nullopt;
  return Search(items, budget).run();
}

}  // namespace halfbyte::convert::budget
