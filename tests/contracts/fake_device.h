// A second device without hardware: LibTorch's PrivateUse1, whose memory is the host's and whose operators are the
// CPU's by way of LibTorch's own fallback. To LibTorch it is a backend like any other that halfbyte has no kernels for.
#pragma once

#include <c10/core/Device.h>

namespace halfbyte::tests {

inline constexpr c10::DeviceType kFakeDevice = c10::DeviceType::PrivateUse1;

}  // namespace halfbyte::tests
