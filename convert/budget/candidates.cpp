#include "convert/budget/candidates.h"

#include <algorithm>
#include <array>

#include <halfbyte/scheme.h>

namespace halfbyte::convert::budget {
namespace {

struct Row {
  std::string_view scheme;
  std::int64_t group_size;
};

// asym_int4 is not among them: transformers reads it only where all tensors are stored alike.
constexpr auto kForAll = std::to_array<Row>({{"sym_int4", 128}, {"sym_int4", 64}, {"sym_int4", 32}});
constexpr auto kForHalfbyte = std::to_array<Row>({{"hb4", 128}, {"hb4", 64}, {"hb4", 32}, {"hb4_fine", 16}});
constexpr auto kEightBits = std::to_array<Row>({{"sym_int8", 128}, {"sym_int8", kPerChannel}});

}  // namespace

std::vector<Candidate> candidates(const QuantizeOptions& options) {
  std::vector<Candidate> out;
  const auto add = [&](const auto& rows) {
    for (const Row& row : rows) out.push_back({std::string(row.scheme), row.group_size});
  };
  const Scheme* asked = options.scheme ? find_scheme(*options.scheme) : nullptr;
  if (options.scheme && !asked)
    throw Error(ErrorCode::kInvalidArgument, "scheme '" + *options.scheme + "' is not known");
  if (asked) {
    for (const std::int64_t size : group_sizes(*asked)) out.push_back({std::string(asked->name), size});
  } else if (options.halfbyte_only) {
    add(kForHalfbyte);
  } else {
    add(kForAll);
  }
  if (options.group_size) {
    const std::string four_bits = out.front().scheme;
    out.assign(1, {four_bits, *options.group_size});
  }
  const bool is_eight_bits = asked && asked->bits == 8;
  const bool has_same_readers = !asked || (asked->has_foreign_readers && asked->layout == Layout::kPackQuantized);
  if (!is_eight_bits && (options.halfbyte_only || has_same_readers)) add(kEightBits);
  return out;
}

}  // namespace halfbyte::convert::budget
