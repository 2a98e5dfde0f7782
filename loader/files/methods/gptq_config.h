// What a quantization_config of GPTQ, AWQ or AutoRound says of the linears' tensors. All three write the same kind of
// tensors.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loader/files/methods/quantization.h"

namespace halfbyte::files {

enum class GptqPacking : std::uint8_t { kGptqV1, kGptqV2, kAwq };  // v1: zero points are stored less one

struct LinearFormat {
  int bits;                 // 4 or 8
  std::int64_t group_size;  // 0: one group a row
  bool is_symmetric;        // as the config says: every zero point is the middle
};

struct GptqConfig {
  std::string where;  // for messages
  GptqPacking packing;
  std::map<std::string, LinearFormat, std::less<>> by_module;
  std::vector<LinearFormat> formats;  // of all modules, the usual one first; patterns say which, shapes do too
};

// Errors of all: kUnsupported naming the setting; kCorrupt.
GptqConfig read_gptq_config(const JsonField& config);
GptqConfig read_awq_config(const JsonField& config);
GptqConfig read_auto_round_config(const JsonField& config);

// A configuration in a file beside config.json; found only where there are tensors packed so.
FindDeclaration find_gptq_side_file;

}  // namespace halfbyte::files
