#include "models/parallel/stages.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include <halfbyte/error.h>

namespace halfbyte::models {
namespace {

// Where a stage may begin: layers, in order. Behind the first of them no layer reads keys of one before.
std::vector<std::int64_t> borders(const ModelConfig& config) {
  std::vector<std::int64_t> out;
  std::int64_t least = config.num_hidden_layers;  // whose keys layers from here on read
  for (std::int64_t layer = config.num_hidden_layers - 1; layer >= 0; --layer) {
    const std::int64_t keys_of = config.layer(layer).keys_of;
    if (keys_of >= 0) least = std::min(least, keys_of);
    if (layer <= least) out.push_back(layer);
  }
  std::ranges::reverse(out);
  return out;
}

// All bytes in these, so that squares are whole numbers, and no machine rounds them otherwise.
constexpr std::uint64_t kMostUnits = std::uint64_t{1} << 30;

// Of as many ranges as `count` that follow each other, where each begins: so that the sum of the squares of what is in
// them is the least. `before`: what is before each place, and all of it at the end; below 2^31.
std::vector<std::size_t> evenest(std::span<const std::uint64_t> before, std::size_t count) {
  constexpr std::uint64_t kNever = std::uint64_t{1} << 63;
  std::vector<std::uint64_t> least(before.size(), kNever);  // up to each place
  least[0] = 0;
  std::vector<std::vector<std::size_t>> begins(count, std::vector<std::size_t>(before.size()));
  for (std::vector<std::size_t>& of_range : begins) {
    std::vector<std::uint64_t> next(before.size(), kNever);
    for (std::size_t end = 1; end < before.size(); ++end) {
      for (std::size_t begin = 0; begin < end; ++begin) {
        const std::uint64_t own = before[end] - before[begin], sum = least[begin] + own * own;
        if (sum >= next[end]) continue;
        next[end] = sum;
        of_range[end] = begin;
      }
    }
    least = std::move(next);
  }
  std::vector<std::size_t> out(count);
  std::size_t end = before.size() - 1;
  for (std::size_t i = count; i-- > 0;) out[i] = end = begins[i][end];
  return out;
}

}  // namespace

std::vector<int> Stage::ranks() const {
  std::vector<int> out(static_cast<std::size_t>(places));
  std::iota(out.begin(), out.end(), index * places);
  return out;
}

Stage stage_of(int rank, int size, int stages) {
  if (stages < 1 || size % stages != 0)
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(size) + " ranks cannot be divided into " + std::to_string(stages) + " stages of layers");
  const int places = size / stages;
  return {rank / places, stages, rank % places, places};
}

std::vector<std::int64_t> first_layers(const ModelConfig& config, std::span<const std::uint64_t> bytes, int stages) {
  std::vector<std::int64_t> places = borders(config);
  const auto wanted = static_cast<std::size_t>(stages);
  if (places.size() < wanted)
    throw Error(ErrorCode::kUnsupported, "the " + std::to_string(config.num_hidden_layers) +
                                             " layers of this model can be divided into " +
                                             std::to_string(places.size()) + " stages at most, not " +
                                             std::to_string(stages) + "; layers stay with those whose keys they read");
  places.push_back(config.num_hidden_layers);
  const std::uint64_t all = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
  const std::uint64_t unit = all / kMostUnits + 1;
  std::vector<std::uint64_t> before;
  for (const std::int64_t place : places)
    before.push_back(std::accumulate(bytes.begin(), bytes.begin() + place, std::uint64_t{0}) / unit);
  std::vector<std::int64_t> out;
  for (const std::size_t begin : evenest(before, wanted)) out.push_back(places[begin]);
  return out;
}

ModelConfig staged(const ModelConfig& config, std::span<const std::uint64_t> bytes, const Stage& stage) {
  ModelConfig out = config;
  if (stage.count == 1) return out;
  std::vector<std::int64_t> firsts = first_layers(config, bytes, stage.count);
  firsts.push_back(config.num_hidden_layers);
  const auto index = static_cast<std::size_t>(stage.index);
  out.first_layer = firsts[index];
  out.stage_layers = firsts[index + 1] - firsts[index];
  return out;
}

}  // namespace halfbyte::models
