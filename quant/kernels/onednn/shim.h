// The C interface of libhalfbyte_onednn: the one product that halfbyte asks of oneDNN. Included by the library
// (shim.cpp) and by the side that opens it (onednn.cpp); knows neither oneDNN nor the rest of halfbyte.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Changes whenever a declaration below does.
#define HALFBYTE_ONEDNN_ABI 2

enum HalfbyteOnednnDtype { kHalfbyteOnednnFloat32 = 0, kHalfbyteOnednnBfloat16 = 1 };

// output = input * weight^T. Shapes: input (m, k), weight (n, k), both of `dtype`; output (m, n), float32; all
// row-major without gaps, since brgemm refuses an output with gaps.
struct HalfbyteOnednnMatmul {
  int dtype;
  int64_t m, n, k;
  const void* input;
  const void* weight;
  float* output;
};

// 0: done. Else an explanation of at most error_size - 1 characters is in error. Without data (null pointers) it only
// makes the primitive ready. Runs on the calling thread alone. Threads: reentrant.
typedef int HalfbyteOnednnMatmulFunction(const HalfbyteOnednnMatmul* matmul, char* error, size_t error_size);
typedef int HalfbyteOnednnAbiFunction();
typedef const char* HalfbyteOnednnVersionFunction();  // "2.6.3": of the oneDNN that is running, or of its headers

#define HALFBYTE_ONEDNN_MATMUL "halfbyte_onednn_matmul"
#define HALFBYTE_ONEDNN_ABI_OF "halfbyte_onednn_abi"
#define HALFBYTE_ONEDNN_VERSION "halfbyte_onednn_version"
#define HALFBYTE_ONEDNN_BUILT_AGAINST "halfbyte_onednn_built_against"

}  // extern "C"
