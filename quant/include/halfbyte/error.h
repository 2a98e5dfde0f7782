// The one exception type of every halfbyte library, and the codes callers branch on.
#pragma once

#include <memory>
#include <stdexcept>

#include <halfbyte/text.h>

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
// what to do; options have the names of their fields in it. text() is the same for whoever spells them otherwise.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const Text& text)
      : std::runtime_error(text.str()), code_(code), text_(std::make_shared<const Text>(text)) {}
  ErrorCode code() const noexcept { return code_; }
  const Text& text() const noexcept { return *text_; }

 private:
  ErrorCode code_;
  std::shared_ptr<const Text> text_;  // shared: exceptions are copied without a throw
};

}  // namespace halfbyte
