#include "tests/fuzz/results.h"

#include <cstdio>
#include <system_error>

#include "loader/files/verify.h"
#include "tests/fuzz/target.h"

namespace halfbyte::fuzz {
namespace {

const Folder& folder_of_process() {
  static const Folder folder;
  return folder;
}

}  // namespace

Results::~Results() {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_of_process().path(), ignored))
    fs::remove_all(entry.path(), ignored);
}

fs::path Results::operator/(std::string_view name) const { return folder_of_process() / name; }

void require_good(const fs::path& result) {
  files::VerifyReport report;
  try {
    report = files::verify(files::open_checkpoint(result));
  } catch (const Error& error) {
    report.findings.push_back({"as a whole", error.what()});
  }
  for (const auto& finding : report.findings)
    std::fprintf(stderr, "verify: %s: %s\n", finding.tensor.c_str(), finding.problem.c_str());
  require(report.findings.empty(), "what was written verifies");
}

}  // namespace halfbyte::fuzz
