// libFuzzer target (preset "fuzz"): whatever halfbyte.json says, it is read or refused with an Error; what is read can
// be written, and is read back as the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <halfbyte/error.h>

#include "loader/files/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace halfbyte;
  try {
    const files::Manifest manifest = files::parse_manifest({reinterpret_cast<const char*>(data), size}, "fuzz");
    const std::string text = files::manifest_to_json(manifest);
    if (!files::manifest_hash_matches(text)) std::abort();
    if (files::manifest_to_json(files::parse_manifest(text, "fuzz")) != text) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
