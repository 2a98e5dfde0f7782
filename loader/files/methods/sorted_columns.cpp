#include "loader/files/methods/sorted_columns.h"

#include <algorithm>
#include <numeric>

namespace halfbyte::files {
namespace {

std::uint64_t row_bytes(std::int64_t columns, int bits) {
  const std::int64_t per_word = 32 / bits;
  return static_cast<std::uint64_t>((columns + per_word - 1) / per_word * 4);
}

void sort_row(const std::byte* codes, const std::vector<std::int32_t>& order, int bits, std::byte* out) {
  if (bits == 8) {
    for (std::size_t j = 0; j < order.size(); ++j) out[j] = codes[order[j]];
    return;
  }
  for (std::size_t j = 0; j < order.size(); ++j) {
    const auto from = static_cast<std::size_t>(order[j]);
    const std::byte code = codes[from / 2] >> (from % 2 * 4) & std::byte{15};
    out[j / 2] |= code << (j % 2 * 4);
  }
}

}  // namespace

bool have_equal_sizes(const std::vector<std::int32_t>& group_of, std::int64_t groups) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(groups));
  for (const std::int32_t group : group_of) ++sizes[static_cast<std::size_t>(group)];
  return std::ranges::adjacent_find(sizes, std::ranges::not_equal_to{}) == sizes.end();
}

std::vector<std::int32_t> ColumnGroups::order() const {
  const std::vector<std::int32_t> group_of = read_groups(stored, columns, groups);
  std::vector<std::int32_t> out(group_of.size());
  std::iota(out.begin(), out.end(), 0);
  std::ranges::stable_sort(out, {}, [&](std::int32_t column) { return group_of[static_cast<std::size_t>(column)]; });
  return out;
}

SortedCodes::SortedCodes(std::unique_ptr<TensorBytes> codes, ColumnGroups groups, int bits)
    : UnitBytes(row_bytes(groups.columns, bits), codes->size_bytes() / row_bytes(groups.columns, bits)),
      codes_(std::move(codes)),
      groups_(std::move(groups)),
      bits_(bits),
      row_bytes_(row_bytes(groups_.columns, bits)) {}

void SortedCodes::read_units(std::uint64_t first, std::uint64_t count, std::byte* out) const {
  const std::vector<std::int32_t> order = groups_.order();
  std::vector<std::byte> codes(count * row_bytes_);
  codes_->read(first * row_bytes_, codes);
  std::fill_n(out, codes.size(), std::byte{0});
  for (std::uint64_t row = 0; row < count; ++row)
    sort_row(codes.data() + row * row_bytes_, order, bits_, out + row * row_bytes_);
}

void SortedOrder::read(std::uint64_t begin, std::span<std::byte> out) const {
  const std::vector<std::int32_t> order = groups_.order();
  std::copy_n(std::as_bytes(std::span(order)).data() + begin, out.size(), out.data());
}

}  // namespace halfbyte::files
