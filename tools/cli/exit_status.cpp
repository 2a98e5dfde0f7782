#include "tools/cli/exit_status.h"

namespace halfbyte::cli {
namespace {

struct Row {
  ErrorCode code;
  ExitStatus status;
};

constexpr Row kTable[] = {{ErrorCode::kInvalidArgument, ExitStatus::kUsage},
                          {ErrorCode::kNotFound, ExitStatus::kFailed},
                          {ErrorCode::kAlreadyExists, ExitStatus::kFailed},
                          {ErrorCode::kCorrupt, ExitStatus::kBadData},
                          {ErrorCode::kUnsupported, ExitStatus::kBadData},
                          {ErrorCode::kContract, ExitStatus::kBadData},
                          {ErrorCode::kIo, ExitStatus::kFailed},
                          {ErrorCode::kNoResources, ExitStatus::kNoResources},
                          {ErrorCode::kInterrupted, ExitStatus::kInterrupted}};

}  // namespace

ExitStatus exit_status(ErrorCode code) noexcept {
  for (const Row& row : kTable) {
    if (row.code == code) return row.status;
  }
  return ExitStatus::kFailed;
}

}  // namespace halfbyte::cli
