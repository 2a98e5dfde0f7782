// Chooses the kernels: one ordered list, the CPU's word, and HALFBYTE_ISA's.
#ifdef HALFBYTE_X86
#include "quant/kernels/amx.h"
#include "quant/kernels/cpuid.h"
#endif

#include <cstdlib>
#include <cstring>
#include <string>

#include <halfbyte/error.h>

#include "quant/kernels/kernels.h"

namespace halfbyte::quant::kernels {
namespace {

bool always() { return true; }

#ifdef HALFBYTE_X86
bool has_f16c() {  // which Clang's __builtin_cpu_supports does not know
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
// __builtin_cpu_supports also asks xgetbv whether the operating system saves the registers.
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }
bool has_avx2_vnni() { return has_avx2() && Leaf7().has_avx_vnni(); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool has_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool has_bf16() { return has_vnni() && __builtin_cpu_supports("avx512bf16"); }
bool has_amx() { return has_bf16() && Leaf7().has_amx() && may_use_tiles(); }

// Zen 3's prefetchers follow some streams, and two threads read 20 GB/s there with two each, 17 to 18 with one. On a
// Zen 5 decode takes 8 % more time with two, on a Zen 4, which is of Zen 3's family and has AVX-512, 16 to 26 %.
constexpr unsigned kZenTo2 = 0x17, kZen3And4 = 0x19;
// A Zen 4 reads one row's weights in 11 to 17 % less time by way of the second-level cache; long rows of weights so for
// two rows of input in 5 to 11 %, four 4 to 8, but short ones in more. Past it, 4 KB ahead are better than 10 and 16.
constexpr Fetches kZen4Fetches = {{8192, true}, {4096}, {4096, true}};
Table on_this_cpu(Table table) {
  const unsigned family = amd_family();
  const bool is_zen4 = family == kZen3And4 && has_avx512();
  table.streams = family == kZenTo2 || (family == kZen3And4 && !is_zen4) ? 2 : 1;
  if (is_zen4) table.fetches = &kZen4Fetches;
  return table;
}

// A level that adds products to another's.
Table with_products(const char* name, Table table, const Int8Table& int8, const PanelTable& int8_panels,
                    const PanelTable* bfloat16_panels) {
  table.name = name;
  table.int8 = &int8;
  table.int8_panels = &int8_panels;
  table.bfloat16_panels = bfloat16_panels;
  return table;
}

Table avx512_with_int8() {
  Table table = on_this_cpu(kAvx512);
  table.int8_attention = &kAvx512Int8Attention;
  table.wide = &kAvx512Wide;
  return table;
}

Table avx512_with_bfloat16() {
  Table table = avx512_with_int8();
  table.bfloat16_attention = &kAvx512Bfloat16Attention;
  table.bfloat16_columns = &kAvx512Bfloat16Columns;
  return table;
}

// Products in registers of blocks, of what the table's own functions unpack.
template <class Products>
Products in_blocks(Products table, void (*multiply)(const PanelArguments&) noexcept) {
  table.input = kAmxProducts.input;
  table.multiply = multiply;
  table.interleave = kAmxProducts.interleave;
  return table;
}

const Table* avx512_bf16() {
  static const Table table =
      with_products("avx512_bf16", avx512_with_bfloat16(), kAvx512Int8, kAvx512Int8Panels, &kAvx512Bfloat16Panels);
  return &table;
}
const Table* amx_bf16() {
  static const PanelTable panels = in_blocks(kAvx512Bfloat16Panels, kAmxProducts.multiply_panels);
  static const PanelTable int8_panels = in_blocks(kAvx512Int8Panels, kAmxProducts.multiply_int8_panels);
  static const ColumnTable columns = in_blocks(kAvx512Bfloat16Columns, kAmxProducts.multiply_columns);
  static const Table table = [] {
    Table out = *avx512_bf16();
    out.name = "amx_bf16";
    out.int8_block_panels = &int8_panels;
    out.bfloat16_block_panels = &panels;
    out.bfloat16_columns = &columns;
    return out;
  }();
  return &table;
}
const Table* avx512_vnni() {
  static const Table table = with_products("avx512_vnni", avx512_with_int8(), kAvx512Int8, kAvx512Int8Panels, nullptr);
  return &table;
}
const Table* avx2_vnni() {
  static const Table table = [] {
    Table out =
        with_products("avx2_vnni", on_this_cpu(kAvx2), kAvx2VnniInt8, kAvx2VnniInt8Panels, kAvx2.bfloat16_panels);
    out.int8_attention = &kAvx2VnniInt8Attention;
    return out;
  }();
  return &table;
}
const Table* avx512() {
  static const Table table = on_this_cpu(kAvx512);
  return &table;
}
const Table* avx2() {
  static const Table table = on_this_cpu(kAvx2);
  return &table;
}
#endif
const Table* ref() { return &kRef; }

// Best first.
constexpr Level kLevels[] = {
#ifdef HALFBYTE_X86
    {"amx_bf16", amx_bf16, has_amx},
    {"avx512_bf16", avx512_bf16, has_bf16},
    {"avx512_vnni", avx512_vnni, has_vnni},
    {"avx512", avx512, has_avx512},
    {"avx2_vnni", avx2_vnni, has_avx2_vnni},
    {"avx2", avx2, has_avx2},
#endif
    {"ref", ref, always},
};

const Table& choose() {
  const char* forced = std::getenv("HALFBYTE_ISA");  // NOLINT(concurrency-mt-unsafe): nobody of ours sets it
  if (forced && *forced) return kernels(forced);
  for (const Level& level : kLevels) {
    if (level.is_available()) return *level.table();
  }
  return kRef;
}

}  // namespace

const Level* levels(std::size_t* count) noexcept {
  *count = std::size(kLevels);
  return kLevels;
}

const Table& kernels(const char* name) {
  std::string known;
  for (const Level& level : kLevels) {
    if (std::strcmp(level.name, name) == 0) {
      if (level.is_available()) return *level.table();
      throw Error(ErrorCode::kInvalidArgument,
                  "HALFBYTE_ISA: this CPU has no " + std::string(name) + "; unset it or set ref");
    }
    known += known.empty() ? level.name : std::string(", ") + level.name;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "HALFBYTE_ISA: no level is called '" + std::string(name) + "'; the levels are " + known);
}

const Table& kernels() {
  static const Table& chosen = choose();
  return chosen;
}

}  // namespace halfbyte::quant::kernels
