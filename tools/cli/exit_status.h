// What the halfbyte programs tell the shell, and the one table from error codes to it.
#pragma once

#include <string_view>

#include <halfbyte/error.h>

namespace halfbyte::cli {

enum class ExitStatus : int {
  kDone = 0,
  kFailed = 1,        // the operating system or the machine's set-up was in the way
  kUsage = 2,         // the command line makes no sense
  kBadData = 3,       // corrupt, truncated, unsupported, NaN
  kNoResources = 4,   // out of disk or memory
  kInterrupted = 130  // Ctrl-C; what a shell reports for SIGINT
};

ExitStatus exit_status(ErrorCode code) noexcept;
// "not_found": what scripts read under --json, the same in every version.
std::string_view name(ErrorCode code) noexcept;

}  // namespace halfbyte::cli
