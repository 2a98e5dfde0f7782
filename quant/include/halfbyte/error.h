// The one exception type of every halfbyte library, and the codes callers branch on.
#pragma once

#include <stdexcept>
#include <string>

namespace halfbyte {

enum class ErrorCode {
  kInvalidArgument,  // the caller asked for something that makes no sense
  kNotFound,         // a path or a name does not exist
  kAlreadyExists,    // a destination is in the way
  kCorrupt,          // a file breaks its format, or contradicts another file of the checkpoint
  kUnsupported,      // well formed, but beyond what this version reads or this machine runs
  kContract,         // dtypes or devices that an operator would not accept
  kIo,               // the operating system refused a read or a write
  kNoResources,      // out of disk or memory
  kInterrupted,      // the user asked to stop
};

// Ends the call that throws it. what() is one line that names the file or tensor, what was found, what was wanted and
// what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace halfbyte
