// The public call of verifying.
#include <halfbyte/error.h>
#include <halfbyte/verify.h>

#include "loader/files/printable.h"
#include "loader/files/verify.h"

namespace halfbyte {

Verified verify(const std::filesystem::path& path, const VerifyOptions& options) {
  if (!options.expect.empty()) files::check_hash_text(options.expect);
  const files::VerifyReport report = files::verify(files::open_checkpoint(path), nullptr, options.progress);
  Verified out{report.hash, report.tensors_hashed, report.tensors_unhashed, {}};
  for (const files::VerifyFinding& finding : report.findings)
    out.problems.push_back(files::printable(finding.tensor + ": " + finding.problem));
  if (!options.expect.empty()) files::check_expected(path, report, options.expect);
  return out;
}

}  // namespace halfbyte
