#include "loader/files/data_file_layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <utility>

#include <nlohmann/json.hpp>

namespace halfbyte::files {
namespace {

constexpr std::uint64_t kAlignment = 64;

int alignment_bits(const OutputTensor& tensor) noexcept { return std::countr_zero(tensor.size_bytes | kAlignment); }

// One member at a time: an ordered_json object would compare every new key with all before it.
std::string header_text(const std::vector<OutputTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  std::string out = "{\"__metadata__\":" + nlohmann::json(metadata).dump();
  std::uint64_t begin = 0;
  for (const OutputTensor& tensor : tensors) {
    const nlohmann::ordered_json entry{{"dtype", info(tensor.dtype).safetensors},
                                       {"shape", tensor.shape},
                                       {"data_offsets", {begin, begin + tensor.size_bytes}}};
    out.append(",").append(nlohmann::json(tensor.name).dump()).append(":").append(entry.dump());
    begin += tensor.size_bytes;
  }
  return out + "}";
}

std::string with_length(std::string json) {
  json.append((kAlignment - (sizeof(std::uint64_t) + json.size()) % kAlignment) % kAlignment, ' ');
  const auto length = std::bit_cast<std::array<char, sizeof(std::uint64_t)>>(std::uint64_t{json.size()});
  return std::string(length.data(), length.size()) + json;
}

}  // namespace

OutputTensor output_tensor(std::string name, Dtype dtype, std::vector<std::int64_t> shape) {
  std::int64_t bits = info(dtype).bits;
  for (const std::int64_t dimension : shape) bits *= dimension;
  return {std::move(name), dtype, std::move(shape), static_cast<std::uint64_t>(bits) / 8, 0};
}

DataFileLayout lay_out(std::string file_name, std::vector<OutputTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::ranges::stable_sort(tensors, std::greater(), alignment_bits);
  DataFileLayout out{std::move(file_name), std::move(tensors), {}, 0};
  out.header = with_length(header_text(out.tensors, metadata));
  out.size_bytes = out.header.size();
  for (OutputTensor& tensor : out.tensors) {
    tensor.offset = out.size_bytes;
    out.size_bytes += tensor.size_bytes;
  }
  return out;
}

}  // namespace halfbyte::files
