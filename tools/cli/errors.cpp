#include "tools/cli/errors.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>

#include <halfbyte/backend_error.h>
#include <halfbyte/error.h>

#include "tools/cli/log.h"
#include "tools/cli/spelling.h"

namespace halfbyte::cli {
namespace {

constexpr std::size_t kLongestMessage = 4096;  // bytes: a few paths, and what to do

ExitStatus say(std::string_view message, ExitStatus status) {
  const std::string line = "halfbyte: " + halfbyte::printable(message, kLongestMessage) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  return status;
}

ExitStatus status_of(const std::error_code& code) {
  const bool is_full =
      code == std::errc::no_space_on_device || code == std::errc::not_enough_memory || code.value() == EDQUOT;
  return is_full ? ExitStatus::kNoResources : ExitStatus::kFailed;
}

// A result that did not reach its reader is a failure, as for every program that writes to a full disk.
ExitStatus flush_stdout(ExitStatus status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  const std::error_code code(errno, std::generic_category());
  return say("cannot write to standard output: " + code.message(), status_of(code));
}

ExitStatus report_current_exception() {
  try {
    throw;
  } catch (const UsageError& error) {
    return say(error.what(), ExitStatus::kUsage);
  } catch (const BackendError& error) {
    const ExitStatus status = say(said(error), exit_status(error.code()));
    log_info("the library's own words: " + error.detail());
    return status;
  } catch (const Error& error) {
    return say(said(error), exit_status(error.code()));
  } catch (const std::bad_alloc&) {
    return say("out of memory", ExitStatus::kNoResources);
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().empty() ? std::string("the path") : error.path1().string();
    return say(path + ": cannot be used: " + error.code().message(), status_of(error.code()));
  } catch (const std::system_error& error) {
    return say(error.what(), status_of(error.code()));
  } catch (const std::exception& error) {
    const ExitStatus status = say("internal error: please report it, with what -v says", ExitStatus::kFailed);
    log_info(error.what());
    return status;
  } catch (...) {
    return say("internal error: unknown exception", ExitStatus::kFailed);
  }
}

}  // namespace

ExitStatus report_errors(const std::function<ExitStatus()>& body) noexcept {
  try {
    try {
      return flush_stdout(body());
    } catch (...) {
      std::fflush(stdout);
      return report_current_exception();
    }
  } catch (...) {  // no memory even for the message
    return ExitStatus::kNoResources;
  }
}

void fail_no_tokenizer(const std::string& checkpoint, const std::string& cure) {
  throw Error(ErrorCode::kNotFound,
              checkpoint +
                  ": has no tokenizer: tokenizer.json, tokenizer.model or vocab.json with merges.txt is read; " + cure);
}

}  // namespace halfbyte::cli
