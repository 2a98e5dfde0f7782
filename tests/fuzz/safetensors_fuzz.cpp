// libFuzzer target (preset "fuzz"): whatever a header says, it is read or refused with an Error, and what is read is
// sound.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <halfbyte/error.h>

#include "loader/files/safetensors.h"

namespace {

// The first two bytes are the size of the data, so that sound headers are within reach.
void check(std::string_view input) {
  const auto data_bytes =
      static_cast<std::uint64_t>(static_cast<unsigned char>(input[0])) * 256 + static_cast<unsigned char>(input[1]);
  const auto header = halfbyte::files::parse_safetensors_header(input.substr(2), data_bytes, "fuzz");
  std::uint64_t end = header.data_offset;
  for (const auto& entry : header.entries) {
    if (entry.offset != end) std::abort();
    end += entry.size_bytes;
  }
  if (end != header.data_offset + data_bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return -1;
  try {
    check({reinterpret_cast<const char*>(data), size});
  } catch (const halfbyte::Error&) {
  }
  return 0;
}
