// Files as torch.save writes them, made by hand, and the same with lies in them.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include "tests/loader/files/scratch.h"

namespace halfbyte::testing {

template <typename T>
std::string little(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// One member, with room for a lie in every field.
struct ZipEntry {
  std::string name;
  std::string bytes;
  std::uint16_t method = 0, flags = 0;
  std::optional<std::string> local_name = {};
  std::optional<std::uint32_t> local_size = {}, central_size = {}, local_offset = {};
  bool is_zip64 = false;  // sizes and offset in the extra field
};

inline std::string zip_of(const std::vector<ZipEntry>& entries, bool has_end64 = false) {
  std::string out, directory;
  for (const ZipEntry& e : entries) {
    const auto size = static_cast<std::uint32_t>(e.bytes.size());
    const auto offset = static_cast<std::uint32_t>(out.size());
    const std::string& local_name = e.local_name ? *e.local_name : e.name;
    const std::string extra64 = little<std::uint16_t>(1) + little<std::uint16_t>(16) +
                                little<std::uint64_t>(e.bytes.size()) + little<std::uint64_t>(e.bytes.size());
    const std::string local_extra = e.is_zip64 ? extra64 : std::string("FB\2\0ZZ", 6);
    const std::uint32_t local_size = e.is_zip64 ? 0xffffffff : e.local_size.value_or(size);
    const std::uint32_t central_size = e.is_zip64 ? 0xffffffff : e.central_size.value_or(size);
    out += "PK\3\4" + std::string("\x14\0", 2) + little(e.flags) + little(e.method) + std::string(8, '\0') +
           little(local_size) + little(local_size) + little(static_cast<std::uint16_t>(local_name.size())) +
           little(static_cast<std::uint16_t>(local_extra.size())) + local_name + local_extra + e.bytes;
    std::string extra = e.is_zip64 ? extra64 + little<std::uint64_t>(offset) : "";
    if (e.is_zip64) extra[2] = 24;
    directory += "PK\1\2" + std::string("\x14\0\x14\0", 4) + little(e.flags) + little(e.method) + std::string(8, '\0') +
                 little(central_size) + little(central_size) + little(static_cast<std::uint16_t>(e.name.size())) +
                 little(static_cast<std::uint16_t>(extra.size())) + std::string(10, '\0') +
                 little(e.is_zip64 ? 0xffffffff : e.local_offset.value_or(offset)) + e.name + extra;
  }
  const std::uint64_t at = out.size(), count = entries.size();
  out += directory;
  if (has_end64) {
    const std::uint64_t end64 = out.size();
    out += "PK\6\6" + little<std::uint64_t>(44) + std::string(12, '\0') + little(count) + little(count) +
           little<std::uint64_t>(directory.size()) + little(at);
    out += "PK\6\7" + std::string(4, '\0') + little(end64) + little<std::uint32_t>(1);
  }
  const std::uint16_t entries16 = has_end64 ? 0xffff : static_cast<std::uint16_t>(count);
  const std::uint32_t size32 = has_end64 ? 0xffffffff : static_cast<std::uint32_t>(directory.size());
  const std::uint32_t at32 = has_end64 ? 0xffffffff : static_cast<std::uint32_t>(at);
  return out + "PK\5\6" + std::string(4, '\0') + little(entries16) + little(entries16) + little(size32) + little(at32) +
         std::string(2, '\0');
}

// In one string. (GCC 12 warns of what `"x" + std::string()` becomes.)
inline std::string joined(std::initializer_list<std::string_view> pieces) {
  std::string out;
  for (const std::string_view piece : pieces) out += piece;
  return out;
}

// Pieces of a pickle of protocol 2.
inline std::string text(const std::string& value) {
  return joined({"X", little(static_cast<std::uint32_t>(value.size())), value});
}
inline std::string integer(std::int64_t value) { return std::string("\x8a\x08", 2) + little(value); }
inline std::string integers(const std::vector<std::int64_t>& values) {
  std::string out = "(";
  for (const std::int64_t value : values) out += integer(value);
  return out + "t";
}
inline std::string global(const std::string& module, const std::string& name) {
  return joined({"c", module, "\n", name, "\n"});
}
inline std::string storage(const std::string& key, const std::string& type, std::int64_t size) {
  return joined({"(", text("storage"), global("torch", type), text(key), text("cpu"), integer(size), "tQ"});
}
// Of float32.
inline std::string tensor_of(const std::string& key, std::int64_t storage_size, std::int64_t offset,
                             const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                             const std::string& type = "FloatStorage") {
  return joined({global("torch._utils", "_rebuild_tensor_v2"), "(", storage(key, type, storage_size), integer(offset),
                 integers(shape), integers(strides), "\x89", global("collections", "OrderedDict"), ")RtR"});
}
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "}(";
  for (const auto& [key, value] : items) out += text(key) + value;
  return out + "u";
}
inline std::string pickle_of(const std::string& value) { return "\x80\x02" + value + "."; }

inline std::vector<ZipEntry> torch_entries(const std::string& pickle,
                                           const std::vector<std::pair<std::string, std::string>>& storages) {
  std::vector<ZipEntry> out{{"m/data.pkl", pickle}, {"m/byteorder", "little"}};
  for (const auto& [key, bytes] : storages) out.push_back({"m/data/" + key, bytes});
  out.push_back({"m/version", "3\n"});
  return out;
}

inline std::vector<std::int64_t> contiguous_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> out(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) out[i] = stride;
  return out;
}

// A state dict, each tensor in a storage of its own.
inline std::string torch_file(const std::vector<TestTensor>& tensors) {
  std::vector<std::pair<std::string, std::string>> items, storages;
  for (const TestTensor& t : tensors) {
    const Dtype dtype = *dtype_from_safetensors(t.dtype);
    const std::string type = dtype == Dtype::kBfloat16  ? "BFloat16Storage"
                             : dtype == Dtype::kFloat32 ? "FloatStorage"
                                                        : "ByteStorage";
    const std::string key = std::to_string(storages.size());
    const auto values = static_cast<std::int64_t>(t.bytes.size()) * 8 / info(dtype).bits;
    items.emplace_back(t.name, tensor_of(key, values, 0, t.shape, contiguous_strides(t.shape), type));
    storages.emplace_back(key, t.bytes);
  }
  return zip_of(torch_entries(pickle_of(dict(items)), storages));
}

}  // namespace halfbyte::testing
