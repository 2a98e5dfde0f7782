// The members of a zip file, as they lie in it: nothing is decompressed, since PyTorch stores tensors as they are.
// Source: PKWARE APPNOTE.TXT 6.3.10, sections 4.3 to 4.5.3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loader/files/platform.h"

namespace halfbyte::files {

struct ZipMember {
  std::string name;
  std::uint64_t offset = 0;  // of its bytes, from the start of the file
  std::uint64_t size_bytes = 0;
  bool is_compressed = false;  // then these are not its own bytes
};

// By name. Reads the directory at the end and every member's own header; they must say the same, lie one after another
// and inside the file. Errors: kCorrupt; kUnsupported (encrypted, in several parts), naming the file.
std::vector<ZipMember> read_zip(const InputFile& file);

// Whether it starts as a zip file does.
bool is_zip(const InputFile& file);

// By name, logarithmic; null: there is none.
const ZipMember* find_member(const std::vector<ZipMember>& members, std::string_view name);

}  // namespace halfbyte::files
