#include "quant/kernels/cpu_products.h"

#include <cstdlib>

#ifdef HALFBYTE_X86
#include "quant/kernels/cpuid.h"
#endif

namespace halfbyte::quant {
namespace {

#ifdef HALFBYTE_X86
bool has_float16() {
  const kernels::Leaf7 leaf;
  return (leaf.edx & (1U << 23)) || (leaf.eax_of_1 & (1U << 21));
}

bool has_bfloat16() {
  const kernels::Leaf7 leaf;
  return (leaf.eax_of_1 & (1U << 5)) || (leaf.edx & (1U << 22));
}
constexpr const char* kFloat16Names = "AVX512-FP16 and AMX-FP16";
constexpr const char* kBfloat16Names = "AVX512-BF16 and AMX-BF16";
#else
bool has_float16() { return false; }
bool has_bfloat16() { return false; }
constexpr const char* kFloat16Names = "float16 products that halfbyte knows";
constexpr const char* kBfloat16Names = "bfloat16 products that halfbyte knows";
#endif

// oneDNN obeys both names.
std::string limit_of_onednn() {
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nobody of ours sets it
    const std::string text = value ? value : "";
    if (!text.empty() && text != "DEFAULT" && text != "ALL") return std::string(name) + "=" + text;
  }
  return {};
}

}  // namespace

std::string lacking_products(Dtype dtype) {
  const bool is_float16 = dtype == Dtype::kFloat16;
  if (!is_float16 && dtype != Dtype::kBfloat16) return {};
  const std::string names = is_float16 ? kFloat16Names : kBfloat16Names;
  if (!(is_float16 ? has_float16() : has_bfloat16())) return names;
  const std::string limit = limit_of_onednn();
  return limit.empty() ? limit : names + " under " + limit;
}

}  // namespace halfbyte::quant
