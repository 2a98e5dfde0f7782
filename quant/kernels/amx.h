// Leave to use AMX's tile registers, which an operating system gives a process that asks. For dispatch.cpp.
#pragma once

namespace halfbyte::quant::kernels {

// Whether this process may use them, on a CPU that has them. Asked once. Threads: reentrant.
bool may_use_tiles() noexcept;

}  // namespace halfbyte::quant::kernels
