#include <halfbyte/load_report.h>

namespace halfbyte {

const char* name(Placement placement) noexcept {
  constexpr const char* kNames[] = {"mapped", "cast", "copied", "derived", "moved"};
  return kNames[static_cast<int>(placement)];
}

std::uint64_t LoadReport::bytes_with(Placement placement) const noexcept {
  std::uint64_t bytes = 0;
  for (const LoadedTensor& tensor : tensors) bytes += tensor.placement == placement ? tensor.bytes : 0;
  return bytes;
}

}  // namespace halfbyte
