#include "convert/training/packing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include <halfbyte/error.h>

namespace halfbyte::convert {
namespace {

using training::Sequence;

// Each token with what comes after it.
Sequence shifted(const models::TokenIds& ids, const std::vector<std::int64_t>& labels) {
  std::size_t end = labels.size();
  while (end > 1 && labels[end - 1] == training::kUnscored) --end;
  if (end < 2) return {};
  const auto count = static_cast<std::ptrdiff_t>(end) - 1;
  return {.tokens = {ids.begin(), ids.begin() + count},
          .labels = {labels.begin() + 1, labels.begin() + 1 + count},
          .lengths = {count}};
}

// Which pieces go together.
std::vector<std::vector<std::size_t>> best_fit(const std::vector<Sequence>& pieces, std::int64_t capacity) {
  std::vector<std::size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return pieces[i].tokens.size(); });
  std::vector<std::vector<std::size_t>> bins;
  std::set<std::pair<std::int64_t, std::size_t>> rooms;  // tokens left, and of which
  for (const std::size_t piece : order) {
    const std::int64_t size = std::ssize(pieces[piece].tokens);
    const auto found = rooms.lower_bound({size, 0});
    const auto [room, bin] = found == rooms.end() ? std::pair(capacity, bins.size()) : *found;
    if (found != rooms.end()) rooms.erase(found);
    if (bin == bins.size()) bins.emplace_back();
    bins[bin].push_back(piece);
    if (room > size) rooms.insert({room - size, bin});
  }
  for (auto& bin : bins) std::ranges::sort(bin);
  std::ranges::sort(bins);
  return bins;
}

}  // namespace

std::vector<Sequence> cut(const Document& document, std::int64_t context) {
  const std::int64_t size = std::ssize(document.ids);
  std::vector<Sequence> out;
  for (std::int64_t next = 0; next < size;) {
    models::TokenIds ids;
    if (next > 0) ids = document.prefix.empty() ? models::TokenIds{document.ids[next - 1]} : document.prefix;
    const std::int64_t run = std::min(context - std::ssize(ids), size - next);
    if (run <= 0)
      throw Error(ErrorCode::kInvalidArgument, "a context of " + std::to_string(context) +
                                                   " tokens has no room for more than the tokenizer's prefix");
    std::vector<std::int64_t> labels(ids.size(), training::kUnscored);
    ids.insert(ids.end(), document.ids.begin() + next, document.ids.begin() + next + run);
    labels.insert(labels.end(), document.labels.begin() + next, document.labels.begin() + next + run);
    next += run;
    out.push_back(shifted(ids, labels));
  }
  return out;
}

std::vector<Sequence> pack(std::vector<Sequence> pieces, std::int64_t capacity) {
  std::vector<Sequence> out;
  for (const auto& bin : best_fit(pieces, capacity)) {
    Sequence all = std::move(pieces[bin.front()]);
    for (std::size_t i = 1; i < bin.size(); ++i) {
      const Sequence one = std::move(pieces[bin[i]]);
      all.tokens.insert(all.tokens.end(), one.tokens.begin(), one.tokens.end());
      all.labels.insert(all.labels.end(), one.labels.begin(), one.labels.end());
      all.lengths.insert(all.lengths.end(), one.lengths.begin(), one.lengths.end());
    }
    out.push_back(std::move(all));
  }
  return out;
}

}  // namespace halfbyte::convert
