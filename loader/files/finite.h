// Whether the numbers of a tensor are finite, as those of every weight must be. For verify and for everything that
// writes a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// A buffer, or what is no known kind of weight, may well hold infinities: attention masks do.
bool must_be_finite(models::Role role) noexcept;
bool must_be_finite(const Checkpoint& checkpoint, const TensorRecord& record);

struct NonFiniteNumber {
  std::uint64_t index;
  float value;
};

// The first NaN or infinity of a dense run of numbers of any dtype. `bytes` are whole numbers.
std::optional<NonFiniteNumber> first_non_finite(Dtype dtype, std::span<const std::byte> bytes);

// What of a packed record would make a weight NaN or infinite: "holds nan in "X.weight_scale", row 3, column 17", or a
// scale whose product with a code float32 cannot hold, or, with its offset, the sum. Nothing: every weight is finite.
// Reads scales, offsets and tables, no codes. Errors: as read_stored.
std::optional<std::string> scale_problem(const Checkpoint& checkpoint, const TensorRecord& record);

// Whether one of these numbers, which are scales, offsets or of a table, may be such a problem: cheaper than to read
// all of the record's again, and rarely so. `bytes` are whole numbers; integers are none.
bool may_overflow(Dtype dtype, std::span<const std::byte> bytes);

// Whether a value that `dtype` would make infinite was a number of it before it was quantised, beyond the end by the
// error of that alone: the tensor was of that dtype, and the value is at most twice its largest. Rounding to the
// nearest code at most doubles a weight, since zero is a code too; what is further away was never a number of that
// dtype, whatever is on record. Such a value comes back as the largest.
bool is_past_end(const TensorRecord& record, Dtype dtype, float value) noexcept;

// Errors: kCorrupt with that problem.
void check_scales(const Checkpoint& checkpoint, const TensorRecord& record);

// Errors: kCorrupt saying that value `index` of `tensor`, as messages call it, in row-major order, is none.
[[noreturn]] void fail_non_finite(const std::string& tensor, const std::vector<std::int64_t>& shape,
                                  std::uint64_t index, float value);

// "row 3, column 17" of the value with this index in row-major order.
std::string place_of_value(std::uint64_t index, const std::vector<std::int64_t>& shape);

}  // namespace halfbyte::files
