// GGUF files made by hand, sound and unsound. For tests of the reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace halfbyte::testing {

template <typename T>
std::string raw(T value) {
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

inline std::string gguf_text(const std::string& text) { return raw<std::uint64_t>(text.size()) + text; }

// Numbers of the metadata's types.
enum : std::uint32_t {
  kGgufU8 = 0,
  kGgufU32 = 4,
  kGgufI32 = 5,
  kGgufF32 = 6,
  kGgufBool = 7,
  kGgufText = 8,
  kGgufList = 9
};

struct GgufBytes {
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> lengths;  // as the file has them: the fastest first
    std::uint32_t type = 0;
    std::string bytes;
    std::optional<std::uint64_t> offset = {};  // what the table says, if not the truth
  };

  std::uint32_t version = 3;
  std::optional<std::uint64_t> tensor_count, entry_count;  // what the header says, if not the truth
  std::vector<std::string> entries;
  std::vector<Tensor> tensors;
  std::uint64_t alignment = 32;

  void entry(const std::string& key, std::uint32_t type, const std::string& value) {
    entries.push_back(gguf_text(key) + raw(type) + value);
  }
  void text(const std::string& key, const std::string& value) { entry(key, kGgufText, gguf_text(value)); }
  void number(const std::string& key, std::uint32_t value) { entry(key, kGgufU32, raw(value)); }
  void real(const std::string& key, float value) { entry(key, kGgufF32, raw(value)); }
  void flag(const std::string& key, bool value) { entry(key, kGgufBool, std::string(1, value ? '\1' : '\0')); }
  void list(const std::string& key, std::uint32_t type, std::uint64_t count, const std::string& items) {
    entry(key, kGgufList, raw(type) + raw(count) + items);
  }
  void texts(const std::string& key, const std::vector<std::string>& items) {
    std::string all;
    for (const std::string& item : items) all += gguf_text(item);
    list(key, kGgufText, items.size(), all);
  }

  std::string header() const {
    std::string out = "GGUF" + raw(version) + raw<std::uint64_t>(tensor_count.value_or(tensors.size())) +
                      raw<std::uint64_t>(entry_count.value_or(entries.size()));
    for (const std::string& entry : entries) out += entry;
    std::uint64_t offset = 0;
    for (const Tensor& tensor : tensors) {
      out += gguf_text(tensor.name) + raw(static_cast<std::uint32_t>(tensor.lengths.size()));
      for (const std::uint64_t length : tensor.lengths) out += raw(length);
      out += raw(tensor.type) + raw(tensor.offset.value_or(offset));
      offset = padded(offset + tensor.bytes.size());
    }
    return out;
  }

  std::string all() const {
    std::string out = header();
    for (const Tensor& tensor : tensors) {
      out.resize(padded(out.size()), '\0');
      out += tensor.bytes;
    }
    return out;
  }

 private:
  std::uint64_t padded(std::uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }
};

}  // namespace halfbyte::testing
