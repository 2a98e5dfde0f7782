#include "loader/files/difference.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "loader/files/hash.h"
#include "loader/files/printable.h"
#include "loader/files/tensor_reader.h"

namespace halfbyte::files {
namespace {

constexpr std::int64_t kBlockValues = std::int64_t{1} << 20;
constexpr std::size_t kBlockBytes = std::size_t{1} << 22;

struct Sums {
  double squared_difference = 0;
  double squared_reference = 0;
  double max_abs = 0;

  void add(std::span<const float> values, std::span<const float> reference) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double difference = static_cast<double>(values[i]) - static_cast<double>(reference[i]);
      squared_difference += difference * difference;
      squared_reference += static_cast<double>(reference[i]) * static_cast<double>(reference[i]);
      // Not std::max, which loses a NaN.
      if (!(std::abs(difference) <= max_abs)) max_abs = std::abs(difference);
    }
  }
  double rel_rmse() const { return squared_difference == 0 ? 0 : std::sqrt(squared_difference / squared_reference); }
};

Sums measure(const Checkpoint& a, const TensorRecord& record, const Checkpoint& b, const TensorRecord& reference) {
  TensorReader left(a, record);
  TensorReader right(b, reference);
  const std::int64_t row = std::max(left.row_size(), right.row_size());
  const std::int64_t step = std::max<std::int64_t>(1, kBlockValues / std::max<std::int64_t>(1, row)) * row;
  std::vector<float> values;
  std::vector<float> wanted;
  Sums sums;
  for (std::int64_t at = 0; at < left.size(); at += step) {
    const auto count = static_cast<std::size_t>(std::min(step, left.size() - at));
    values.resize(count);
    wanted.resize(count);
    left.read(at, values);
    right.read(at, wanted);
    sums.add(values, wanted);
  }
  return sums;
}

std::string hash_of(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  Hash128 hash;
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < tensor.size_bytes; at += block.size()) {
    block.resize(std::min<std::uint64_t>(kBlockBytes, tensor.size_bytes - at));
    checkpoint.data_files[tensor.file]->read(tensor.offset + at, block);
    hash.update(block);
  }
  return hash.hex();
}

// A tensor's record, found through a tie when it is an alias.
const TensorRecord* resolve(const Manifest& manifest, const std::string& name) {
  if (const TensorRecord* found = manifest.find(name)) return found;
  const auto tie = std::ranges::find(manifest.ties, name, [](const auto& pair) { return pair.first; });
  return tie == manifest.ties.end() ? nullptr : manifest.find(tie->second);
}

bool are_values_comparable(const TensorRecord& a, const TensorRecord& b) {
  return TensorReader::can_read(a) && TensorReader::can_read(b);
}

}  // namespace

void compare(const Checkpoint& checkpoint, const Checkpoint& reference, VerifyReport& report,
             const std::function<void(std::uint64_t bytes)>& progress) {
  for (const TensorRecord& wanted : reference.manifest.tensors) {
    const TensorRecord* record = resolve(checkpoint.manifest, wanted.name);
    if (!record) {
      report.findings.push_back({wanted.name, "is in the original and missing here"});
    } else if (record->shape != wanted.shape) {
      report.findings.push_back(
          {wanted.name, "has shape " + printable(record->shape) + ", the original " + printable(wanted.shape)});
    } else if (are_values_comparable(*record, wanted)) {
      const Sums sums = measure(checkpoint, *record, reference, wanted);
      report.differences.push_back({wanted.name, sums.rel_rmse(), sums.max_abs});
    } else if (record->scheme || wanted.scheme || record->stored_dtype != wanted.stored_dtype) {
      report.findings.push_back(
          {wanted.name, "is stored in another dtype than the original's, and cannot be compared"});
    } else if (hash_of(checkpoint, *checkpoint.find(record->parts[Part::kCodes])) !=
               hash_of(reference, *reference.find(wanted.parts[Part::kCodes]))) {
      report.findings.push_back({wanted.name, "differs from the original"});
    } else {
      report.differences.push_back({wanted.name, 0, 0});
    }
    if (record) progress(record->size_bytes);
  }
  for (const TensorRecord& record : checkpoint.manifest.tensors) {
    if (!resolve(reference.manifest, record.name))
      report.findings.push_back({record.name, "is here and not in the original"});
  }
}

}  // namespace halfbyte::files
