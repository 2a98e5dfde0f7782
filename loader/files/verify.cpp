#include "loader/files/verify.h"

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>

#include <halfbyte/error.h>
#include <halfbyte/quantize.h>

#include "loader/files/difference.h"
#include "loader/files/hash.h"
#include "loader/files/json_text.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{1} << 22;

using Progress = std::function<void(std::uint64_t bytes)>;

// "row 3, column 17" of the value with this index in row-major order.
std::string place(std::uint64_t index, const std::vector<std::int64_t>& shape) {
  const auto columns = shape.empty() ? std::uint64_t{1} : static_cast<std::uint64_t>(shape.back());
  return "row " + std::to_string(index / columns) + ", column " + std::to_string(index % columns);
}

class TensorCheck {
 public:
  TensorCheck(const Checkpoint& checkpoint, const TensorRecord& record, VerifyReport& report, const Progress& progress)
      : checkpoint_(checkpoint), record_(record), report_(report), progress_(progress) {}

  void run() {
    for (const std::string& part : record_.parts.names) {
      if (!part.empty()) check_part(*checkpoint_.find(part));
    }
    if (record_.parts.has(Part::kShape)) check_shape(*checkpoint_.find(record_.parts[Part::kShape]));
    ++(record_.xxh3_128.empty() ? report_.tensors_unhashed : report_.tensors_hashed);
    if (!record_.xxh3_128.empty() && hash_.hex() != record_.xxh3_128) {
      find("its bytes are not those that were written (hash " + hash_.hex() + ", on record " + record_.xxh3_128 + ")");
    }
  }

 private:
  void find(const std::string& problem) { report_.findings.push_back({record_.name, problem}); }

  void check_part(const StoredTensor& part) {
    bool is_checked = is_weight_dtype(part.dtype) && must_be_finite();
    for (std::uint64_t at = 0; at < part.size_bytes; at += block_.size()) {
      block_.resize(std::min(kBlockBytes, part.size_bytes - at));
      checkpoint_.data_files[part.file]->read(part.offset + at, block_);
      hash_.update(block_);
      if (is_checked) is_checked = check_finite(part, at);
      report_.bytes_read += block_.size();
      progress_(block_.size());
    }
  }

  // A buffer, or what is no known kind of weight, may well hold infinities: attention masks do.
  bool must_be_finite() const {
    const models::Role role = models::role_of(checkpoint_.architecture, record_.name, record_.shape);
    return !record_.is_buffer && role != models::Role::kBuffer && role != models::Role::kUnknown;
  }

  // False after a finding: one a part is enough.
  bool check_finite(const StoredTensor& part, std::uint64_t at) {
    const auto width = static_cast<std::uint64_t>(size_bytes(part.dtype));
    const auto count = static_cast<std::int64_t>(block_.size() / width);
    const auto bad = quant::find_non_finite({block_.data(), part.dtype, 1, count});
    if (!bad) return true;
    find("holds " + std::to_string(bad->value) + " in " + in_quotes(part.name) + ", " +
         place(at / width + static_cast<std::uint64_t>(bad->column), part.shape));
    return false;
  }

  void check_shape(const StoredTensor& part) {
    std::array<std::int64_t, 2> shape{};
    checkpoint_.data_files[part.file]->read(part.offset, std::as_writable_bytes(std::span(shape)));
    if (!std::ranges::equal(shape, record_.shape)) {
      find(in_quotes(part.name) + " says " + printable(shape) + ", the record " + printable(record_.shape));
    }
  }

  const Checkpoint& checkpoint_;
  const TensorRecord& record_;
  VerifyReport& report_;
  const Progress& progress_;
  Hash128 hash_;
  std::vector<std::byte> block_;
};

std::optional<std::string> file_problem(const fs::path& path, const FileRecord& record) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return "is missing";
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

}  // namespace

VerifyReport verify(const Checkpoint& checkpoint, const Checkpoint* against,
                    const std::function<void(std::uint64_t done, std::uint64_t total)>& progress) {
  VerifyReport report;
  const std::uint64_t total = checkpoint.size_bytes * (against ? 2 : 1);
  std::uint64_t done = 0;
  const Progress advance = [&](std::uint64_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  };
  check_files(checkpoint, report);
  for (const TensorRecord& record : checkpoint.manifest.tensors) {
    TensorCheck(checkpoint, record, report, advance).run();
  }
  if (against) compare(checkpoint, *against, report, advance);
  return report;
}

}  // namespace halfbyte::files
