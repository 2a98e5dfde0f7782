#include "loader/files/difference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "loader/files/parallel.h"
#include "loader/files/tensor_reader.h"
#include "loader/files/turned_stacks.h"

namespace halfbyte::files {
namespace {

// Two float32 blocks of this many values stay in a second-level cache.
constexpr std::int64_t kBlockValues = std::int64_t{1} << 16;
constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 18;

// Sums of one tensor, in lanes, so that the compiler needs no leave to reorder additions.
class Sums {
 public:
  void add(std::span<const float> values, std::span<const float> reference) {
    std::size_t i = 0;
    for (; i + kLanes <= values.size(); i += kLanes) add_lanes(values.data() + i, reference.data() + i);
    std::array<float, kLanes> a{};
    std::array<float, kLanes> b{};
    std::ranges::copy(values.subspan(i), a.begin());
    std::ranges::copy(reference.subspan(i), b.begin());
    add_lanes(a.data(), b.data());
  }

  double rel_rmse() const {
    const double difference = sum(squared_difference_);
    return difference == 0 ? 0 : std::sqrt(difference / sum(squared_reference_));
  }

  // A NaN among the differences is in their sum, but a comparison may have lost it.
  double max_abs() const {
    const double difference = sum(squared_difference_);
    return std::isnan(difference) ? difference : *std::ranges::max_element(max_abs_);
  }

 private:
  static constexpr std::size_t kLanes = 8;
  using Lanes = std::array<double, kLanes>;

  void add_lanes(const float* values, const float* reference) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      const auto wanted = static_cast<double>(reference[l]);
      // Equal infinities differ by nothing.
      const double difference = values[l] == reference[l] ? 0.0 : static_cast<double>(values[l]) - wanted;
      squared_difference_[l] += difference * difference;
      squared_reference_[l] += wanted * wanted;
      const double distance = std::abs(difference);
      max_abs_[l] = max_abs_[l] < distance ? distance : max_abs_[l];
    }
  }

  static double sum(const Lanes& lanes) {
    double out = 0;
    for (const double lane : lanes) out += lane;
    return out;
  }

  Lanes squared_difference_{};
  Lanes squared_reference_{};
  Lanes max_abs_{};
};

// Packed experts are rows, and so are dense ones of some formats; where the other's are columns they are compared as
// rows.
struct Side {
  const Checkpoint& checkpoint;
  const TensorRecord& record;
};
bool is_turned(const Side& side, const Side& other) {
  const bool are_rows = other.record.scheme || other.checkpoint.row_stacks.contains(other.record.name);
  const TensorParts& parts = side.record.parts;
  return !side.record.scheme && are_rows && holds_columns(side.checkpoint, *side.checkpoint.find(parts[Part::kCodes]));
}

std::vector<std::int64_t> shape_beside(const Side& side, const Side& other) {
  std::vector<std::int64_t> out = side.record.shape;
  if (is_turned(side, other)) std::swap(out[1], out[2]);
  return out;
}

// The values of a tensor, as they are to be compared with another's.
class ComparedValues {
 public:
  ComparedValues(const Side& side, const Side& other) {
    if (is_turned(side, other)) turn_stacks(turned_.emplace(side.checkpoint), {side.record.name});
    const Checkpoint& seen = turned_ ? *turned_ : side.checkpoint;
    reader_.emplace(seen, turned_ ? *seen.manifest.find(side.record.name) : side.record);
  }
  ComparedValues(const ComparedValues&) = delete;
  TensorReader* operator->() noexcept { return &*reader_; }

 private:
  std::optional<Checkpoint> turned_;
  std::optional<TensorReader> reader_;
};

void measure(const Checkpoint& a, const Checkpoint& b, Comparison& out) {
  const Side mine{a, *out.record}, wanted_side{b, *out.reference};
  ComparedValues left(mine, wanted_side);
  ComparedValues right(wanted_side, mine);
  const std::int64_t row = std::max(left->row_size(), right->row_size());
  const std::int64_t step = std::max<std::int64_t>(1, kBlockValues / std::max<std::int64_t>(1, row)) * row;
  std::vector<float> values;
  std::vector<float> wanted;
  Sums sums;
  for (std::int64_t at = 0; at < left->size(); at += step) {
    const auto count = static_cast<std::size_t>(std::min(step, left->size() - at));
    values.resize(count);
    wanted.resize(count);
    left->read(at, values);
    right->read(at, wanted);
    sums.add(values, wanted);
  }
  out.rel_rmse = sums.rel_rmse();
  out.max_abs = sums.max_abs();
}

bool are_stored_alike(const TensorRecord& a, const TensorRecord& b) {
  if (a.scheme != b.scheme) return false;
  if (!a.scheme) return a.stored_dtype == b.stored_dtype;
  return a.group_size == b.group_size && a.scale_dtype == b.scale_dtype && a.nested_offset == b.nested_offset;
}

bool have_same_bytes(const Checkpoint& a, const TensorRecord& left, const Checkpoint& b, const TensorRecord& right) {
  for (std::size_t i = 0; i < kPartCount; ++i) {
    const std::string& ours = left.parts.names[i];
    const std::string& theirs = right.parts.names[i];
    if (ours.empty() != theirs.empty()) return false;
    if (!ours.empty() && !have_same_bytes(a, *a.find(ours), b, *b.find(theirs))) return false;
  }
  return true;
}

// A tensor's record, found through a tie when it is an alias.
const TensorRecord* resolve(const Manifest& manifest, const std::string& name) {
  if (const TensorRecord* found = manifest.find(name)) return found;
  const auto tie = std::ranges::find(manifest.ties, name, [](const auto& pair) { return pair.first; });
  return tie == manifest.ties.end() ? nullptr : manifest.find(tie->second);
}

void compare_values(const Checkpoint& a, const Checkpoint& b, Comparison& row) {
  const bool is_alike = are_stored_alike(*row.record, *row.reference);
  if (is_alike && have_same_bytes(a, *row.record, b, *row.reference)) {
    row.match = Match::kSameBytes;
  } else if (TensorReader::can_read(*row.record) && TensorReader::can_read(*row.reference)) {
    row.match = Match::kMeasured;
    measure(a, b, row);
  } else {
    row.match = is_alike ? Match::kOtherBytes : Match::kNotComparable;
  }
}

std::vector<Comparison> pair_up(const Checkpoint& checkpoint, const Checkpoint& reference) {
  std::vector<Comparison> rows;
  for (const TensorRecord& wanted : reference.manifest.tensors) {
    const TensorRecord* record = resolve(checkpoint.manifest, wanted.name);
    const auto has_other_shape = [&] {
      const Side mine{checkpoint, *record}, theirs{reference, wanted};
      return shape_beside(mine, theirs) != shape_beside(theirs, mine);
    };
    const Match match = !record ? Match::kMissing : has_other_shape() ? Match::kOtherShape : Match::kNotComparable;
    rows.push_back({wanted.name, record, &wanted, match});
  }
  for (const TensorRecord& record : checkpoint.manifest.tensors) {
    if (!resolve(reference.manifest, record.name)) rows.push_back({record.name, &record, nullptr, Match::kExtra});
  }
  return rows;
}

}  // namespace

bool have_same_bytes(const Checkpoint& a, const StoredTensor& left, const Checkpoint& b, const StoredTensor& right) {
  if (left.size_bytes != right.size_bytes) return false;
  std::vector<std::byte> ours;
  std::vector<std::byte> theirs;
  for (std::uint64_t at = 0; at < left.size_bytes; at += ours.size()) {
    ours.resize(std::min(kBlockBytes, left.size_bytes - at));
    theirs.resize(ours.size());
    a.data_files[left.file]->read(left.offset + at, ours);
    b.data_files[right.file]->read(right.offset + at, theirs);
    if (ours != theirs) return false;
  }
  return true;
}

std::vector<Comparison> compare(const Checkpoint& checkpoint, const Checkpoint& reference,
                                const std::function<void(std::uint64_t bytes)>& progress) {
  std::vector<Comparison> rows = pair_up(checkpoint, reference);
  std::vector<std::uint64_t> sizes;
  for (const Comparison& row : rows) sizes.push_back(row.record ? row.record->size_bytes : 0);
  const std::vector<std::size_t> order = largest_first(sizes);
  parallel_for(rows.size(), 0, [&](std::size_t i) {
    Comparison& row = rows[order[i]];
    if (row.match == Match::kNotComparable) compare_values(checkpoint, reference, row);
    progress(sizes[order[i]]);
  });
  return rows;
}

}  // namespace halfbyte::files
