#include "tools/cli/errors.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/backend_error.h>
#include <halfbyte/error.h>

#include "loader/files/system_error.h"
#include "tools/cli/log.h"
#include "tools/cli/output.h"
#include "tools/cli/spelling.h"

namespace halfbyte::cli {
namespace {

constexpr std::size_t kLongestMessage = 4096;  // bytes: a few paths, and what to do

// What there is to say of an error.
struct Failure {
  std::string_view code;  // the same in every version
  ExitStatus status;
  std::string message;
  std::vector<std::string> options = {};  // flags that the message names
  std::string detail = {};                // for -v
};

Failure failure_of(ErrorCode code, std::string message) { return {name(code), exit_status(code), std::move(message)}; }

Failure failure_of(const std::error_code& code, std::string message) {
  const bool is_full = files::code_of(code.value()) == ErrorCode::kNoResources ||
                       code == std::errc::resource_unavailable_try_again;  // of threads
  return failure_of(is_full ? ErrorCode::kNoResources : ErrorCode::kIo, std::move(message));
}

Failure failure_of(const UsageError& error) {
  Failure out = failure_of(ErrorCode::kInvalidArgument, error.what());
  if (std::string option = error.option(); !option.empty()) out.options.push_back(std::move(option));
  return out;
}

Failure failure_of(const Error& error) {
  Failure out = failure_of(error.code(), said(error));
  out.options = flags_in(error.text());
  if (const auto* ours = dynamic_cast<const BackendError*>(&error))
    out.detail = "the library's own words: " + ours->detail();
  return out;
}

Failure internal(std::string message, std::string detail) {
  return {"internal", ExitStatus::kFailed, std::move(message), {}, std::move(detail)};
}

Failure current_failure() {
  try {
    throw;
  } catch (const UsageError& error) {
    return failure_of(error);
  } catch (const Error& error) {
    return failure_of(error);
  } catch (const std::bad_alloc&) {
    return failure_of(ErrorCode::kNoResources, "out of memory");
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().empty() ? std::string("the path") : error.path1().string();
    return failure_of(error.code(), path + ": cannot be used: " + error.code().message());
  } catch (const std::system_error& error) {
    const bool is_of_threads = error.code() == std::errc::resource_unavailable_try_again;
    return failure_of(error.code(), is_of_threads ? kNoThreads : error.what());
  } catch (const std::exception& error) {
    return internal("internal error: please report it, with what -v says", error.what());
  } catch (...) {
    return internal("internal error: unknown exception", "");
  }
}

void say(const Failure& failure) {
  const std::string line = "halfbyte: " + halfbyte::printable(failure.message, kLongestMessage) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  if (!failure.detail.empty()) log_info(failure.detail);
}

// On one line, so that it may follow the lines of a verb that prints an object a line.
void print_object(const Failure& failure) {
  print_json_line({{"error",
                    {{"code", failure.code},
                     {"message", halfbyte::printable(failure.message, kLongestMessage)},
                     {"exit_status", static_cast<int>(failure.status)},
                     {"options", failure.options}}}});
  std::fflush(stdout);
}

ExitStatus report_current_exception(ErrorOutput output) {
  const Failure failure = current_failure();
  if (output == ErrorOutput::kLineAndJson && !is_json_printed()) print_object(failure);
  say(failure);
  return failure.status;
}

// A result that did not reach its reader is a failure, as for every program that writes to a full disk.
ExitStatus flush_stdout(ExitStatus status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  const std::error_code code(errno, std::generic_category());
  const Failure failure = failure_of(code, "cannot write to standard output: " + code.message());
  say(failure);
  return failure.status;
}

}  // namespace

std::string UsageError::option() const {
  if (!option_.empty()) return option_;
  const std::string_view message = what();
  if (!message.starts_with("-")) return "";
  return std::string(message.substr(0, message.find_first_of(" :,")));
}

ExitStatus report_errors(const std::function<ExitStatus()>& body, ErrorOutput output) noexcept {
  try {
    try {
      return flush_stdout(body());
    } catch (...) {
      std::fflush(stdout);
      return report_current_exception(output);
    }
  } catch (...) {  // no memory even for the message
    return ExitStatus::kNoResources;
  }
}

ExitStatus say_stopped(const std::string& note) noexcept {
  std::fprintf(stderr, "halfbyte: stopped%s%s\n", note.empty() ? "" : "; ", note.c_str());
  return ExitStatus::kInterrupted;
}

}  // namespace halfbyte::cli
