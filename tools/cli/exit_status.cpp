#include "tools/cli/exit_status.h"

namespace halfbyte::cli {
namespace {

struct Row {
  ErrorCode code;
  ExitStatus status;
  std::string_view name;
};

constexpr Row kTable[] = {{ErrorCode::kInvalidArgument, ExitStatus::kUsage, "invalid_argument"},
                          {ErrorCode::kNotFound, ExitStatus::kFailed, "not_found"},
                          {ErrorCode::kAlreadyExists, ExitStatus::kFailed, "already_exists"},
                          {ErrorCode::kCorrupt, ExitStatus::kBadData, "corrupt"},
                          {ErrorCode::kUnsupported, ExitStatus::kBadData, "unsupported"},
                          {ErrorCode::kContract, ExitStatus::kBadData, "contract"},
                          {ErrorCode::kIo, ExitStatus::kFailed, "io"},
                          {ErrorCode::kNoResources, ExitStatus::kNoResources, "no_resources"},
                          {ErrorCode::kInterrupted, ExitStatus::kInterrupted, "interrupted"}};

}  // namespace

ExitStatus exit_status(ErrorCode code) noexcept {
  for (const Row& row : kTable) {
    if (row.code == code) return row.status;
  }
  return ExitStatus::kFailed;
}

std::string_view name(ErrorCode code) noexcept {
  for (const Row& row : kTable) {
    if (row.code == code) return row.name;
  }
  return "internal";
}

}  // namespace halfbyte::cli
