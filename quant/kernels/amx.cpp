#include "quant/kernels/amx.h"

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace halfbyte::quant::kernels {

#ifdef __linux__
// Source: Documentation/arch/x86/xstate.rst of Linux.
bool may_use_tiles() noexcept {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  static const bool is_granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return is_granted;
}
#else
bool may_use_tiles() noexcept { return false; }
#endif

}  // namespace halfbyte::quant::kernels
