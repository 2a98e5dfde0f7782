#include "models/tokenizers/huggingface/byte_alphabet.h"

#include <cstdint>

#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {
namespace {

constexpr char32_t kCodes = 0x144;  // characters of the alphabet are smaller

std::array<char32_t, 256> alphabet_codes() {
  std::array<char32_t, 256> codes{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    codes[byte] = is_printable ? byte : next++;
  }
  return codes;
}

std::array<std::int16_t, kCodes> bytes_by_code() {
  std::array<std::int16_t, kCodes> bytes{};
  bytes.fill(-1);
  const auto codes = alphabet_codes();
  for (std::size_t byte = 0; byte < 256; ++byte) bytes[codes[byte]] = static_cast<std::int16_t>(byte);
  return bytes;
}

}  // namespace

const std::array<std::string, 256>& byte_alphabet() {
  static const auto alphabet = [] {
    std::array<std::string, 256> texts;
    const auto codes = alphabet_codes();
    for (std::size_t byte = 0; byte < 256; ++byte) append_utf8(texts[byte], codes[byte]);
    return texts;
  }();
  return alphabet;
}

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  static const auto bytes = bytes_by_code();
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char next = read_char(text.data() + i);
    if (next.code >= kCodes || bytes[next.code] < 0) return std::nullopt;
    result.push_back(static_cast<char>(bytes[next.code]));
    i += next.bytes;
  }
  return result;
}

}  // namespace halfbyte::models::huggingface
