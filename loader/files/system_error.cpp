#include "loader/files/system_error.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

struct Row {
  int error_number;
  ErrorCode code;
  std::string_view help = {};
};

constexpr std::string_view kMakeRoom = "free some space or write to another disk";
constexpr std::string_view kCloseSome = "raise the limit on open files (ulimit -n)";

// Others are kIo, and nothing is known that helps.
constexpr auto kRows = std::to_array<Row>({
    {.error_number = ENOENT, .code = ErrorCode::kNotFound},
    {.error_number = ENOTDIR, .code = ErrorCode::kNotFound},
    {.error_number = EEXIST, .code = ErrorCode::kAlreadyExists},
    {.error_number = ENOTEMPTY, .code = ErrorCode::kAlreadyExists},
    {.error_number = ENOSPC, .code = ErrorCode::kNoResources, .help = kMakeRoom},
    {.error_number = EDQUOT, .code = ErrorCode::kNoResources, .help = kMakeRoom},
    {.error_number = ENOMEM, .code = ErrorCode::kNoResources},
    {.error_number = EFBIG,
     .code = ErrorCode::kNoResources,
     .help = "raise the limit on the size of a file (ulimit -f), or write to a file system that has none"},
    {.error_number = EMFILE, .code = ErrorCode::kIo, .help = kCloseSome},
    {.error_number = ENFILE, .code = ErrorCode::kIo, .help = kCloseSome},
    {.error_number = EROFS, .code = ErrorCode::kIo, .help = "write to another disk"},
});

const Row* row_of(int error_number) noexcept {
  const auto row = std::ranges::find(kRows, error_number, &Row::error_number);
  return row == kRows.end() ? nullptr : &*row;
}

}  // namespace

ErrorCode code_of(int error_number) noexcept {
  const Row* row = row_of(error_number);
  return row ? row->code : ErrorCode::kIo;
}

void fail_on(const std::filesystem::path& path, std::string_view doing, int error_number) {
  const Row* row = row_of(error_number);
  std::string message =
      printable_path(path) + ": " + std::string(doing) + " failed: " + std::generic_category().message(error_number);
  if (row && !row->help.empty()) message += "; " + std::string(row->help);
  throw Error(code_of(error_number), message);
}

}  // namespace halfbyte::files
