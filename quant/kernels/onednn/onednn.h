// oneDNN's matmul where it is worth having: opened on first use, never linked. For quant/*.cpp and for `halfbyte
// doctor`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <halfbyte/dtype.h>

namespace halfbyte::quant::onednn {

// Whether libhalfbyte_onednn was found and opened. HALFBYTE_ONEDNN names its path; "off" or an empty value disables it.
// Else it is looked for beside the object that holds this code and the executable, in ../lib of both, where it was
// built, and where it is installed.
bool available();
// The file that was opened; empty when not available.
const std::string& path();
// Why it is not available, in one line; empty when it is.
const std::string& why_not();
// oneDNN's own version, "2.6.3"; empty when not available.
const std::string& version();
// The version of the headers it was compiled with; empty when not available.
const std::string& built_against();
// Whether this CPU multiplies `dtype` (float32 or bfloat16) through oneDNN's brgemm kernels.
bool supports(Dtype dtype);

// output = input * weight^T. Shapes: input (m, k), weight (n, k), of `dtype`; output (m, n); all without gaps.
struct Matmul {
  Dtype dtype;
  std::int64_t m, n, k;
  const std::byte* input;
  const std::byte* weight;
  float* output;
};

// Makes the primitive for a shape ready, which takes a fraction of a millisecond the first time. False when oneDNN has
// no fast one; the pointers are not looked at.
bool prepare(const Matmul& matmul) noexcept;
// Multiplies on the calling thread alone. False when oneDNN refuses; then output is not to be used. Threads: reentrant.
bool run(const Matmul& matmul) noexcept;

}  // namespace halfbyte::quant::onednn
