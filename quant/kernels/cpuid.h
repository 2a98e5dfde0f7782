// What CPUID says: features whose names compilers learned late, and the family. x86 only.
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

// A family of AMD's as its manuals number them, 0x19 for Zen 3 and 4; 0: another maker's. Source: AMD64 Architecture
// Programmer's Manual, volume 3, CPUID Fn0000_0000 and Fn0000_0001.
inline unsigned amd_family() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool is_amd = __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx;
  if (!is_amd || !__get_cpuid(1, &a, &b, &c, &d)) return 0;
  const unsigned family = a >> 8 & 15, more = a >> 20 & 255;
  return family == 15 ? family + more : family;
}

}  // namespace halfbyte::quant::kernels
