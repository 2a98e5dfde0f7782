// Writes SentencePiece models of a few pieces, byte by byte, for the tests of the reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace halfbyte::tests {

inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

inline std::string number_field(unsigned field, std::uint64_t value) { return varint(field << 3) + varint(value); }

inline std::string bytes_field(unsigned field, const std::string& bytes) {
  return varint(field << 3 | 2) + varint(bytes.size()) + bytes;
}

inline std::string float_field(unsigned field, float value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return varint(field << 3 | 5) + bytes;
}

struct TestPiece {
  std::string text;
  float score = 0;
  unsigned type = 1;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
};

struct TestModel {
  std::vector<TestPiece> pieces = {{"<unk>", 0, 2}, {"<s>", 0, 3}, {"</s>", 0, 3}};
  unsigned type = 2;  // 1 unigram, 2 BPE
  bool byte_fallback = false;
  bool adds_dummy_prefix = true;
  bool removes_extra_spaces = false;
  std::string charsmap = {};

  void add_byte_pieces() {
    byte_fallback = true;
    constexpr char kDigits[] = "0123456789ABCDEF";
    for (unsigned i = 0; i < 256; ++i)
      pieces.push_back({std::string("<0x") + kDigits[i / 16] + kDigits[i % 16] + ">", 0, 6});
  }

  std::string bytes() const {
    std::string out;
    for (const TestPiece& piece : pieces) {
      out += bytes_field(1, bytes_field(1, piece.text) + float_field(2, piece.score) + number_field(3, piece.type));
    }
    out += bytes_field(2, number_field(3, type) + number_field(35, byte_fallback ? 1 : 0));
    return out + bytes_field(3, (charsmap.empty() ? "" : bytes_field(2, charsmap)) +
                                    number_field(3, adds_dummy_prefix ? 1 : 0) +
                                    number_field(4, removes_extra_spaces ? 1 : 0));
  }
};

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace halfbyte::tests
