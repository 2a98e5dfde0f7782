#include "loader/files/finite.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>
#include <halfbyte/quantize.h>

#include "loader/files/matrix_shape.h"
#include "loader/files/printable.h"
#include "loader/files/scale_reader.h"

namespace halfbyte::files {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 18;
constexpr std::size_t kConvertedAtOnce = 1024;
// Scales and offsets below it make finite weights with any code: 128 * 2^118 + 2^118 is far from float32's end.
constexpr float kLargeScale = 0x1p112f;
constexpr std::int64_t kBlockGroups = std::int64_t{1} << 13;  // what the first cache holds

// Dtypes that are not computed with, and how NaN and infinity look in them. The others have neither.
struct BitRule {
  Dtype dtype;
  std::size_t width;  // bytes
  std::uint64_t mask, non_finite;
  std::uint64_t mantissa;  // of what is not finite, 0 is infinity; no bits: there is only NaN
};
constexpr std::uint64_t kExponent64 = 0x7ff0000000000000, kMantissa64 = 0x000fffffffffffff;
constexpr BitRule kBitRules[] = {{Dtype::kFloat64, 8, kExponent64, kExponent64, kMantissa64},
                                 {Dtype::kFloat8E4m3, 1, 0x7f, 0x7f, 0},
                                 {Dtype::kFloat8E5m2, 1, 0x7c, 0x7c, 0x03},
                                 {Dtype::kFloat8E8m0, 1, 0xff, 0xff, 0},
                                 {Dtype::kFloat8E4m3fnuz, 1, 0xff, 0x80, 0},
                                 {Dtype::kFloat8E5m2fnuz, 1, 0xff, 0x80, 0}};

std::optional<NonFiniteNumber> first_by_bits(const BitRule& rule, std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at + rule.width <= bytes.size(); at += rule.width) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, rule.width);
    if ((bits & rule.mask) != rule.non_finite) continue;
    const bool is_infinity = rule.mantissa != 0 && (bits & rule.mantissa) == 0;
    return NonFiniteNumber{at / rule.width, is_infinity ? std::numeric_limits<float>::infinity()
                                                        : std::numeric_limits<float>::quiet_NaN()};
  }
  return std::nullopt;
}

std::string holds(float value, const StoredTensor& part, std::uint64_t index) {
  return "holds " + std::to_string(value) + " in " + in_quotes(part.name) + ", " + place_of_value(index, part.shape);
}

std::optional<std::string> part_problem(const Checkpoint& checkpoint, const StoredTensor& part) {
  std::vector<std::byte> block;
  const auto width = static_cast<std::uint64_t>(size_bytes(part.dtype));
  for (std::uint64_t at = 0; at < part.size_bytes; at += block.size()) {
    block.resize(std::min(kBlockBytes, part.size_bytes - at));
    read_stored(checkpoint, part, at, block);
    if (const auto bad = first_non_finite(part.dtype, block)) return holds(bad->value, part, at / width + bad->index);
  }
  return std::nullopt;
}

// The weights of all groups, of which only scales and offsets are read.
class GroupCheck {
 public:
  GroupCheck(const Checkpoint& checkpoint, const TensorRecord& record)
      : checkpoint_(checkpoint),
        scale_(*checkpoint.find(record.parts[Part::kScale])),
        offset_(record.parts.has(Part::kOffset) ? checkpoint.find(record.parts[Part::kOffset]) : nullptr),
        scales_(checkpoint, record) {
    const auto [rows, columns] = matrix_shape(record.shape);
    shape_ = {rows, columns / record.group_size};
  }

  std::optional<std::string> run() {
    const std::int64_t groups = shape_[0] * shape_[1];
    for (std::int64_t at = 0; at < groups; at += kBlockGroups) {
      if (auto problem = check(at, std::min(kBlockGroups, groups - at))) return problem;
    }
    return std::nullopt;
  }

 private:
  std::optional<std::string> check(std::int64_t begin, std::int64_t count) {
    values_.resize(static_cast<std::size_t>(count));
    scales_.read(begin, values_);
    read_offsets(begin, count);
    codes_.resize(values_.size());
    scales_.read_codes(begin, codes_);
    bool is_finite = true;
    for (std::size_t i = 0; i < values_.size(); ++i) is_finite &= std::isfinite(values_[i] * codes_[i] + offset(i));
    if (is_finite) return std::nullopt;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (auto problem = problem_of(i, static_cast<std::uint64_t>(begin) + i)) return problem;
    }
    return std::nullopt;
  }

  float offset(std::size_t i) const { return offset_ ? offsets_[i] : 0.0f; }

  void read_offsets(std::int64_t begin, std::int64_t count) {
    if (!offset_) return;
    const auto width = static_cast<std::uint64_t>(size_bytes(offset_->dtype));
    bytes_.resize(static_cast<std::uint64_t>(count) * width);
    read_stored(checkpoint_, *offset_, static_cast<std::uint64_t>(begin) * width, bytes_);
    offsets_.resize(static_cast<std::size_t>(count));
    quant::convert(bytes_.data(), offset_->dtype, std::as_writable_bytes(std::span(offsets_)).data(), Dtype::kFloat32,
                   count);
  }

  std::optional<std::string> problem_of(std::size_t i, std::uint64_t group) const {
    if (!std::isfinite(values_[i])) return holds(values_[i], scale_, group);
    if (!std::isfinite(offset(i))) return holds(offset(i), *offset_, group);
    if (std::isfinite(values_[i] * codes_[i] + offset(i))) return std::nullopt;
    return "holds a scale in " + in_quotes(scale_.name) + ", " + place_of_value(group, shape_) +
           ", that makes weights infinite in float32";
  }

  const Checkpoint& checkpoint_;
  const StoredTensor& scale_;
  const StoredTensor* offset_;
  ScaleReader scales_;
  std::vector<std::int64_t> shape_;  // (rows, groups)
  std::vector<float> values_, offsets_, codes_;
  std::vector<std::byte> bytes_;
};

// Of the tables and nested scales, which GroupCheck sees only through the groups that use them.
constexpr Part kTables[] = {Part::kCodebook, Part::kNestedScale, Part::kNestedCodebook, Part::kRowScale};

}  // namespace

bool must_be_finite(models::Role role) noexcept {
  return role != models::Role::kBuffer && role != models::Role::kUnknown;
}

bool must_be_finite(const Checkpoint& checkpoint, const TensorRecord& record) {
  if (record.scheme) return true;
  return !record.is_buffer && must_be_finite(models::role_of(checkpoint.architecture, record.name, record.shape));
}

std::string place_of_value(std::uint64_t index, const std::vector<std::int64_t>& shape) {
  const auto columns = shape.empty() ? std::uint64_t{1} : static_cast<std::uint64_t>(shape.back());
  return "row " + std::to_string(index / columns) + ", column " + std::to_string(index % columns);
}

std::optional<NonFiniteNumber> first_non_finite(Dtype dtype, std::span<const std::byte> bytes) {
  if (is_weight_dtype(dtype)) {
    const auto count = static_cast<std::int64_t>(bytes.size()) / size_bytes(dtype);
    const auto bad = quant::find_non_finite({bytes.data(), dtype, 1, count}, 1);
    return bad ? std::optional(NonFiniteNumber{static_cast<std::uint64_t>(bad->column), bad->value}) : std::nullopt;
  }
  const auto rule = std::ranges::find(kBitRules, dtype, &BitRule::dtype);
  return rule == std::end(kBitRules) ? std::nullopt : first_by_bits(*rule, bytes);
}

std::optional<std::string> scale_problem(const Checkpoint& checkpoint, const TensorRecord& record) {
  for (const Part table : kTables) {
    if (!record.parts.has(table)) continue;
    if (auto problem = part_problem(checkpoint, *checkpoint.find(record.parts[table]))) return problem;
  }
  return GroupCheck(checkpoint, record).run();
}

bool may_overflow(Dtype dtype, std::span<const std::byte> bytes) {
  if (!is_weight_dtype(dtype)) return is_floating(dtype);
  const auto width = static_cast<std::size_t>(size_bytes(dtype));
  std::array<float, kConvertedAtOnce> values;
  bool is_small = true;
  for (std::size_t at = 0; at < bytes.size() / width; at += kConvertedAtOnce) {
    const std::size_t count = std::min(kConvertedAtOnce, bytes.size() / width - at);
    quant::convert(bytes.data() + at * width, dtype, std::as_writable_bytes(std::span(values)).data(), Dtype::kFloat32,
                   static_cast<std::int64_t>(count));
    for (std::size_t i = 0; i < count; ++i) is_small &= std::fabs(values[i]) < kLargeScale;  // NaN is not
  }
  return !is_small;
}

bool is_past_end(const TensorRecord& record, Dtype dtype, float value) noexcept {
  return record.original_dtype == dtype && std::abs(value) / 2 <= largest_value(dtype);
}

void fail_non_finite(const std::string& tensor, const std::vector<std::int64_t>& shape, std::uint64_t index,
                     float value) {
  throw Error(ErrorCode::kCorrupt, tensor + ": " + place_of_value(index, shape) + " is " + std::to_string(value) +
                                       "; weights must be finite, get a sound checkpoint");
}

void check_scales(const Checkpoint& checkpoint, const TensorRecord& record) {
  if (const auto problem = scale_problem(checkpoint, record)) {
    throw Error(ErrorCode::kCorrupt, "tensor " + in_quotes(record.name) + ": " + *problem +
                                         "; weights must be finite, get a sound checkpoint");
  }
}

}  // namespace halfbyte::files
