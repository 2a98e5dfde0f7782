// Whether the libraries that are running are those halfbyte was built against. Needs no LibTorch.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <halfbyte/load_report.h>

namespace halfbyte {

enum class Agreement {
  kSame,
  kOtherPatch,  // 2.13.0 and 2.13.1, or one of them is not known
  kOtherMinor,  // 2.13 and 2.12, or another major version
};

// "2.13.0+cpu" counts as 2.13.0.
Agreement agreement(std::string_view built_against, std::string_view running) noexcept;

// Of the oneDNN that halfbyte opens. Precondition: it is available.
LibraryVersion onednn_version();

// The note about a library of another patch version, or oneDNN of another minor one. Empty: there is none.
std::string version_note(const LibraryVersion& library);

// LibTorch promises no binary compatibility between minor versions: a call may crash, or answer wrong.
// Errors: kUnsupported naming both versions and the cure.
void check_torch_version(const LibraryVersion& torch);

}  // namespace halfbyte
