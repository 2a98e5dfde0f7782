#include "loader/files/verify.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <system_error>

#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "loader/files/checkpoint_hash.h"
#include "loader/files/difference.h"
#include "loader/files/file_tree.h"
#include "loader/files/finite.h"
#include "loader/files/hash.h"
#include "loader/files/json_text.h"
#include "loader/files/parallel.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 18;  // stays in a second-level cache

float smallest_normal(Dtype dtype) noexcept {
  return dtype == Dtype::kFloat16 ? 6.103515625e-5F : std::numeric_limits<float>::min();
}

// What the scales of one tensor are like.
struct ScaleCounts {
  std::uint64_t all = 0;
  std::uint64_t zero = 0;
  std::uint64_t subnormal = 0;

  void add(std::span<const float> scales, float smallest) {
    for (const float scale : scales) {
      const float magnitude = std::abs(scale);
      zero += magnitude == 0;
      subnormal += magnitude > 0 && magnitude < smallest;
    }
    all += scales.size();
  }
};

// Of one tensor, gathered apart so that tensors can be checked at the same time.
struct TensorFindings {
  std::vector<std::string> problems;
  std::vector<std::string> notes;
  std::uint64_t bytes_read = 0;
  std::string hash;
};

class TensorCheck {
 public:
  using Progress = std::function<void(std::uint64_t bytes)>;

  TensorCheck(const Checkpoint& checkpoint, const TensorRecord& record, const Progress& progress)
      : checkpoint_(checkpoint), record_(record), progress_(progress) {}

  TensorFindings run() {
    for (std::size_t i = 0; i < kPartCount; ++i) {
      const std::string& part = record_.parts.names[i];
      if (!part.empty()) check_part(*checkpoint_.find(part), static_cast<Part>(i) == Part::kScale);
    }
    if (record_.nested_offset || is_suspect_) {
      if (const auto problem = scale_problem(checkpoint_, record_)) find(*problem);
    }
    if (record_.parts.has(Part::kShape)) check_shape(*checkpoint_.find(record_.parts[Part::kShape]));
    out_.hash = hash_.hex();
    if (!record_.xxh3_128.empty() && out_.hash != record_.xxh3_128) {
      find("its bytes are not those that were written (hash " + out_.hash + ", on record " + record_.xxh3_128 + ")");
    }
    return std::move(out_);
  }

 private:
  void find(const std::string& problem) { out_.problems.push_back(problem); }

  void check_part(const StoredTensor& part, bool is_scale) {
    bool is_checked = !record_.scheme && must_be_finite(checkpoint_, record_);
    ScaleCounts scales;
    for (std::uint64_t at = 0; at < part.size_bytes; at += block_.size()) {
      block_.resize(std::min(kBlockBytes, part.size_bytes - at));
      checkpoint_.data_files[part.file]->read(part.offset + at, block_);
      hash_.update(block_);
      if (is_checked) is_checked = check_finite(part, at);
      if (record_.scheme && !is_suspect_) is_suspect_ = may_overflow(part.dtype, block_);
      if (is_scale && is_weight_dtype(part.dtype)) count_scales(part.dtype, scales);
      out_.bytes_read += block_.size();
      progress_(block_.size());
    }
    if (is_scale) report_scales(scales);
  }

  // False after a finding: one a part is enough.
  bool check_finite(const StoredTensor& part, std::uint64_t at) {
    const auto bad = first_non_finite(part.dtype, block_);
    if (!bad) return true;
    find("holds " + std::to_string(bad->value) + " in " + in_quotes(part.name) + ", " +
         place_of_value(at / static_cast<std::uint64_t>(size_bytes(part.dtype)) + bad->index, part.shape));
    return false;
  }

  void count_scales(Dtype dtype, ScaleCounts& scales) {
    scales_.resize(block_.size() / static_cast<std::size_t>(size_bytes(dtype)));
    quant::convert(block_.data(), dtype, std::as_writable_bytes(std::span(scales_)).data(), Dtype::kFloat32,
                   static_cast<std::int64_t>(scales_.size()));
    scales.add(scales_, smallest_normal(dtype));
  }

  void report_scales(const ScaleCounts& scales) {
    const auto share = [&](std::uint64_t count) {
      return std::to_string(count) + " of " + std::to_string(scales.all) + " scales ";
    };
    if (scales.zero > 0)
      out_.notes.push_back(share(scales.zero) + (record_.scheme->decode == Decode::kOffset
                                                     ? "are 0: the weights of their groups are all their offset"
                                                     : "are 0: the weights of their groups are all 0"));
    if (scales.subnormal > 0)
      out_.notes.push_back(share(scales.subnormal) + "are subnormal: the weights of their groups have few digits");
  }

  void check_shape(const StoredTensor& part) {
    std::vector<std::int64_t> shape(record_.shape.size());
    checkpoint_.data_files[part.file]->read(part.offset, std::as_writable_bytes(std::span(shape)));
    if (!std::ranges::equal(shape, record_.shape)) {
      find(in_quotes(part.name) + " says " + printable(shape) + ", the record " + printable(record_.shape));
    }
  }

  const Checkpoint& checkpoint_;
  const TensorRecord& record_;
  const Progress& progress_;
  TensorFindings out_;
  Hash128 hash_;
  bool is_suspect_ = false;  // scale_problem() must look at all scales together
  std::vector<std::byte> block_;
  std::vector<float> scales_;
};

std::optional<std::string> file_problem(const fs::path& path, const FileRecord& record) {
  if (!files::is_regular_file(path)) return "is missing";
  const InputFile file(path);
  if (file.size_bytes() != record.size_bytes) {
    return "has " + std::to_string(file.size_bytes()) + " bytes, " + std::to_string(record.size_bytes) +
           " are on record";
  }
  Hash128 hash;
  std::vector<std::byte> block;
  for (std::uint64_t at = 0; at < record.hashed_bytes; at += block.size()) {
    block.resize(std::min(kBlockBytes, record.hashed_bytes - at));
    file.read(at, block);
    hash.update(block);
  }
  if (hash.hex() == record.xxh3_128) return std::nullopt;
  return "its bytes are not those that were written (hash " + hash.hex() + ", on record " + record.xxh3_128 + ")";
}

void check_files(const Checkpoint& checkpoint, VerifyReport& report) {
  if (checkpoint.manifest.is_derived) return;
  const fs::path manifest = checkpoint.directory / kManifestFile;
  if (!manifest_hash_matches(read_text(manifest, kManifestLimits.max_bytes))) {
    report.findings.push_back(
        {kManifestFile, "its bytes are not those that were written: its own hash is wrong or missing"});
  }
  for (const FileRecord& record : checkpoint.manifest.files) {
    if (const auto problem = file_problem(checkpoint.directory / record.name, record)) {
      report.findings.push_back({record.name, *problem});
    }
    report.bytes_read += record.hashed_bytes;
  }
}

void check_tensors(const Checkpoint& checkpoint, VerifyReport& report, const TensorCheck::Progress& progress) {
  const std::vector<TensorRecord>& records = checkpoint.manifest.tensors;
  std::vector<std::uint64_t> sizes;
  for (const TensorRecord& record : records) sizes.push_back(record.size_bytes);
  const std::vector<std::size_t> order = largest_first(sizes);
  std::vector<TensorFindings> results(records.size());
  parallel_for(records.size(), 0,
               [&](std::size_t i) { results[order[i]] = TensorCheck(checkpoint, records[order[i]], progress).run(); });
  for (std::size_t i = 0; i < records.size(); ++i) {
    for (const std::string& problem : results[i].problems) report.findings.push_back({records[i].name, problem});
    for (const std::string& note : results[i].notes) report.notes.push_back({records[i].name, note});
    report.bytes_read += results[i].bytes_read;
    ++(records[i].xxh3_128.empty() ? report.tensors_unhashed : report.tensors_hashed);
  }
  std::vector<std::string> hashes;
  for (TensorFindings& result : results) hashes.push_back(std::move(result.hash));
  report.hash = checkpoint_hash(checkpoint, hashes);
}

// What a comparison with the original says, as findings: nothing may be missing, extra, mis-shaped or unlike it where
// no scheme explains that.
void report_comparison(const Comparison& row, VerifyReport& report) {
  const auto find = [&](const std::string& problem) { report.findings.push_back({row.tensor, problem}); };
  switch (row.match) {
    case Match::kMissing:
      return find("is in the original and missing here");
    case Match::kExtra:
      return find("is here and not in the original");
    case Match::kOtherShape:
      return find("has shape " + printable(row.record->shape) + ", the original " + printable(row.reference->shape));
    case Match::kNotComparable:
      return find("is stored in another dtype than the original's, and cannot be compared");
    case Match::kOtherBytes:
      return find("differs from the original");
    case Match::kSameBytes:
    case Match::kMeasured:
      report.differences.push_back({row.tensor, row.rel_rmse, row.max_abs});
  }
}

}  // namespace

void check_hash_text(const std::string& expected) {
  if (is_hash_hex(expected)) return;
  throw Error(ErrorCode::kInvalidArgument,
              in_quotes(expected) +
                  " is no hash of a checkpoint: that is 32 digits, 0 to 9 and a to f, as verifying one prints");
}

void check_expected(const fs::path& path, const VerifyReport& report, const std::string& expected) {
  if (report.hash == expected) return;
  throw Error(ErrorCode::kCorrupt, printable_path(path) + " is not the checkpoint that was expected: its hash is " +
                                       report.hash + ", and not " + expected);
}

VerifyReport verify(const Checkpoint& checkpoint, const Checkpoint* against,
                    const std::function<void(std::uint64_t done, std::uint64_t total)>& progress) {
  VerifyReport report;
  SharedProgress shared(progress, checkpoint.size_bytes * (against ? 2 : 1));
  const TensorCheck::Progress advance = [&](std::uint64_t bytes) { shared.add(bytes); };
  check_files(checkpoint, report);
  check_tensors(checkpoint, report, advance);
  if (!against) return report;
  for (const Comparison& row : compare(checkpoint, *against, advance)) report_comparison(row, report);
  return report;
}

}  // namespace halfbyte::files
