// What leaf 7 of CPUID says, for features whose names compilers learned late. x86 only.
#pragma once

#include <cpuid.h>

namespace halfbyte::quant::kernels {

// Source: Intel's Architecture Instruction Set Extensions, CPUID leaf 7. A CPU without a leaf gives zeros.
struct Leaf7 {
  unsigned edx = 0;       // of subleaf 0
  unsigned eax_of_1 = 0;  // of subleaf 1
  Leaf7() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) edx = d;
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) eax_of_1 = a;
  }
  bool has_avx_vnni() const { return (eax_of_1 & (1U << 4)) != 0; }
  // Of tiles, their products in bfloat16 and in 8-bit integers.
  bool has_amx() const { return (edx & (1U << 22)) != 0 && (edx & (1U << 24)) != 0 && (edx & (1U << 25)) != 0; }
};

}  // namespace halfbyte::quant::kernels
