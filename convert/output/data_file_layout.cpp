#include "convert/output/data_file_layout.h"

#include <array>
#include <cstdio>
#include <map>

#include <nlohmann/json.hpp>

namespace halfbyte::convert {

std::string data_file_name(std::size_t index, std::size_t count) {
  if (count <= 1) return "model.safetensors";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return text.data();
}

std::string index_text(const std::vector<DataFileLayout>& files) {
  std::uint64_t total = 0;
  std::map<std::string, std::string> weight_map;
  for (const DataFileLayout& file : files) {
    for (const OutputTensor& tensor : file.tensors) {
      weight_map.emplace(tensor.name, file.name);
      total += tensor.size_bytes;
    }
  }
  const nlohmann::ordered_json out{{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  return out.dump(2) + "\n";
}

}  // namespace halfbyte::convert
