// Which instructions multiply values of a dtype, and which of them this CPU lacks: for messages and reports. What is
// computed with is decided by trying (onednn.h, dispatch.cpp), not by this.
#pragma once

#include <string>

#include <halfbyte/dtype.h>

namespace halfbyte::quant {

// "AVX512-FP16 and AMX-FP16" for float16 where the CPU has neither; empty where it has one of them, and for dtypes that
// every CPU multiplies. An environment variable that holds oneDNN to less is named too.
std::string lacking_products(Dtype dtype);

}  // namespace halfbyte::quant
