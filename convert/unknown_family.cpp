#include "convert/unknown_family.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "loader/files/printable.h"

namespace halfbyte::convert {
namespace {

using Words = std::array<std::string_view, 6>;  // empty ones match nothing

enum class Axis : std::uint8_t { kRows, kColumns, kStack };

// What a size of config.json tells of a tensor that has it.
struct Kind {
  Words in_key;       // one of them is in the key
  Words not_in_key;   // and none of them
  std::int64_t most;  // larger values say something else
  Axis axis;
  Words not_in_name;  // of tensors, whatever their sizes
  std::string_view is;
  bool is_no_width = false;  // sizes that a layer has as well say nothing
};

// Projections that attention has under these names are as large by chance.
constexpr Words kAttention = {"q_proj", "k_proj", "v_proj", "o_proj", "qkv", "out_proj"};

// Keys of how wide layers are.
constexpr Words kWidths = {"hidden", "d_model", "n_embd", "intermediate", "ffn", "dim"};

constexpr auto kKinds = std::to_array<Kind>({
    {{"experts"}, {"per_tok", "top", "shared", "size", "group", "used"}, 1 << 16, Axis::kRows, kAttention, "a router"},
    {{"experts"},
     {"per_tok", "top", "shared", "size", "group", "used"},
     1 << 16,
     Axis::kStack,
     {},
     "a stack of experts, of which "
     "nothing says whether rows or columns come first"},
    {{"heads"}, {"layer", "size", "dim"}, 512, Axis::kRows, kAttention, "a gate"},
    {{"vocab_size"}, {}, 1 << 24, Axis::kRows, {}, "an embedding or a head", true},
    {{"d_conv", "conv_kernel", "conv_size"}, {}, 64, Axis::kColumns, {}, "a convolution"},
    {{"dt_rank", "step_rank"}, {}, 1 << 16, Axis::kColumns, {}, "what decides how fast a state decays"},
});

constexpr std::array<std::string_view, 3> kAxisWords = {"rows", "columns", "matrices"};

bool has_one_of(std::string_view text, const Words& words) {
  return std::ranges::any_of(words,
                             [&](std::string_view word) { return !word.empty() && text.find(word) != text.npos; });
}

constexpr int kDepth = 2;  // "text_config" and its like

std::optional<std::int64_t> size_of(const nlohmann::ordered_json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  const double size = value.get<double>();
  if (size < 2 || size > 1 << 30) return std::nullopt;
  return value.get<std::int64_t>();
}

template <class Add>
void for_each_size(const nlohmann::ordered_json& config, int depth, const Add& add) {
  if (!config.is_object()) return;
  for (const auto& [key, value] : config.items()) {
    if (depth > 0) for_each_size(value, depth - 1, add);
    if (const auto size = size_of(value)) add(key, *size);
  }
}

std::optional<std::int64_t> length_along(const files::StoredTensor& tensor, Axis axis) {
  const auto& shape = tensor.shape;
  const std::size_t rank = axis == Axis::kStack ? 3 : 2;
  if (shape.size() != rank) return std::nullopt;
  return shape[axis == Axis::kColumns ? 1 : 0];
}

}  // namespace

UnknownFamily::UnknownFamily(const files::Checkpoint& source) {
  if (source.architecture || !source.has_config()) return;
  std::set<std::int64_t> widths;
  for_each_size(*source.config, kDepth, [&](const std::string& key, std::int64_t size) {
    if (has_one_of(key, kWidths)) widths.insert(size);
  });
  for_each_size(*source.config, kDepth, [&](const std::string& key, std::int64_t size) {
    for (std::size_t i = 0; i < kKinds.size(); ++i) {
      const Kind& kind = kKinds[i];
      const bool is_meant = has_one_of(key, kind.in_key) && !has_one_of(key, kind.not_in_key) && size <= kind.most;
      if (is_meant && !(kind.is_no_width && widths.contains(size))) sizes_.push_back({key, size, i});
    }
  });
}

std::string UnknownFamily::reason_to_keep(const files::StoredTensor& tensor) {
  for (const Size& size : sizes_) {
    const Kind& kind = kKinds[size.kind];
    if (length_along(tensor, kind.axis) != size.value || has_one_of(tensor.name, kind.not_in_name)) continue;
    const std::string out = "as many " + std::string(kAxisWords[static_cast<std::size_t>(kind.axis)]) +
                            " as config.json's " + files::in_quotes(size.key) + " (" + std::to_string(size.value) +
                            "): taken for " + std::string(kind.is);
    ++kept_[out];
    return out;
  }
  return {};
}

std::string UnknownFamily::assumed() const {
  std::string out;
  for (const auto& [reason, count] : kept_)
    out += (out.empty() ? "; kept: " : ", ") + std::to_string(count) + " with " + reason;
  return out;
}

}  // namespace halfbyte::convert
