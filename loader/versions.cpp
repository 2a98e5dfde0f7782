#include "loader/versions.h"

#include <halfbyte/error.h>

#include "quant/kernels/onednn/onednn.h"

namespace halfbyte {
namespace {

// The first `count` numbers of "2.13.0+cpu": "2.13" of two.
std::string_view numbers(std::string_view version, int count) {
  std::size_t end = 0;
  for (; count > 0 && end < version.size(); ++end) {
    const bool is_digit = version[end] >= '0' && version[end] <= '9';
    if (!is_digit && (version[end] != '.' || --count == 0)) break;
  }
  return version.substr(0, end);
}

}  // namespace

LibraryVersion onednn_version() { return {"oneDNN", quant::onednn::built_against(), quant::onednn::version()}; }

Agreement agreement(std::string_view built_against, std::string_view running) noexcept {
  if (built_against.empty() || running.empty()) return Agreement::kOtherPatch;
  if (numbers(built_against, 2) != numbers(running, 2)) return Agreement::kOtherMinor;
  return numbers(built_against, 3) == numbers(running, 3) ? Agreement::kSame : Agreement::kOtherPatch;
}

// oneDNN's minor versions keep its interface; what they change is which kernels it chooses.
std::string version_note(const LibraryVersion& library) {
  if (agreement(library.built_against, library.running) == Agreement::kSame) return "";
  if (library.running.empty()) return library.name + " does not say which version it is";
  return library.name + " " + library.running + " is running; halfbyte was built against " + library.built_against;
}

void check_torch_version(const LibraryVersion& torch) {
  if (agreement(torch.built_against, torch.running) != Agreement::kOtherMinor) return;
  throw Error(ErrorCode::kUnsupported, version_note(torch) +
                                           ", and minor versions are not binary compatible; build halfbyte again "
                                           "(tools/setup.sh), or install LibTorch " +
                                           std::string(numbers(torch.built_against, 2)));
}

}  // namespace halfbyte
