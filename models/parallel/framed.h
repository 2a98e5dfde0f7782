// Several texts, of any bytes, as one.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <halfbyte/error.h>

namespace halfbyte::models {

inline std::string framed(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) {
    const std::uint64_t length = text.size();
    out.append(reinterpret_cast<const char*>(&length), sizeof length).append(text);
  }
  return out;
}

// Errors: kContract for what framed() did not make.
inline std::vector<std::string> unframed(std::string_view all) {
  std::vector<std::string> out;
  while (!all.empty()) {
    std::uint64_t length = 0;
    if (all.size() >= sizeof length) std::memcpy(&length, all.data(), sizeof length);
    if (all.size() < sizeof length || all.size() - sizeof length < length)
      throw Error(ErrorCode::kContract, "ranks are not at the same call, or are of other versions");
    out.emplace_back(all.substr(sizeof length, length));
    all.remove_prefix(sizeof length + length);
  }
  return out;
}

}  // namespace halfbyte::models
