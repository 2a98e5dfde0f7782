// The fields of a protocol buffer's messages: tokenizer.model is one.
// Source: protobuf.dev, programming-guides/encoding.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace halfbyte::models::sentencepiece {

// Thrown where a message ends early or breaks its format.
struct NotAModel {};

struct Field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;  // of a number: its bits
  std::string_view bytes;   // of what has a length
};

// The fields of one message of a protocol buffer, in order. Errors: NotAModel.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    field = {.number = key >> 3, .value = 0, .bytes = {}};
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed<std::uint64_t>();
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.value = fixed<std::uint32_t>();
        break;
      default:
        throw NotAModel();
    }
    return true;
  }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) throw NotAModel();
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    throw NotAModel();
  }

  template <class T>
  T fixed() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string_view rest_;
};

}  // namespace halfbyte::models::sentencepiece
