// Checkpoints to export, some of them by hand, and what must be true of every export.
#pragma once

#include <nlohmann/json.hpp>

#include <halfbyte/convert.h>

#include "convert/export/checkpoint.h"
#include "loader/files/checkpoint.h"
#include "loader/files/tensor_reader.h"
#include "tests/loader/files/scratch.h"

namespace halfbyte::testing {

inline std::string bytes_of(const files::Checkpoint& checkpoint, const std::string& name) {
  INFO("tensor: " << name);
  const files::StoredTensor* tensor = checkpoint.find(name);
  REQUIRE(tensor);
  std::string out(tensor->size_bytes, '\0');
  files::read_stored(checkpoint, *tensor, 0, std::as_writable_bytes(std::span(out)));
  return out;
}

inline std::string words(const std::vector<std::uint32_t>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::uint32_t));
}

inline std::vector<float> numbers_of(const files::Checkpoint& checkpoint, const std::string& name) {
  files::TensorReader reader(checkpoint, *checkpoint.manifest.find(name));
  std::vector<float> out(static_cast<std::size_t>(reader.size()));
  reader.read(0, out);
  return out;
}

// Every tensor has the same numbers in both.
inline void check_same_numbers(const fs::path& a, const fs::path& b) {
  const files::Checkpoint first = files::open_checkpoint(a), second = files::open_checkpoint(b);
  REQUIRE(first.manifest.tensors.size() == second.manifest.tensors.size());
  for (const files::TensorRecord& record : first.manifest.tensors) {
    INFO("tensor: " << record.name);
    REQUIRE(second.manifest.find(record.name));
    CHECK(second.manifest.find(record.name)->shape == record.shape);
    CHECK((second.manifest.find(record.name)->scheme != nullptr) == (record.scheme != nullptr));
    CHECK(numbers_of(first, record.name) == numbers_of(second, record.name));
  }
}

// What was exported is exported again, as it is and after it was imported.
inline void check_fixed(const fs::path& exported, const std::string& format) {
  const Scratch scratch;
  convert::repack(exported, scratch / "imported");
  convert::export_checkpoint(scratch / "imported", scratch / "a", {.format = format});
  convert::export_checkpoint(exported, scratch / "b", {.format = format});
  CHECK(contents_of(scratch / "a") == contents_of(exported));
  CHECK(contents_of(scratch / "b") == contents_of(exported));
}

// A weight of compressed-tensors: code + 8 of row n and column k, zero point + 8 of row n and group g.
struct HandMade {
  std::int64_t rows, columns, group_size;
  std::uint32_t (*code)(std::int64_t n, std::int64_t k);
  std::uint32_t (*zero_point)(std::int64_t n, std::int64_t g) = nullptr;
  float (*scale)(std::int64_t n, std::int64_t g);
  std::string scale_dtype = "F16";

  std::int64_t groups() const { return columns / group_size; }

  std::vector<TestTensor> tensors(const std::string& name) const {
    std::vector<std::uint32_t> codes(static_cast<std::size_t>(rows * columns / 8));
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t k = 0; k < columns; ++k)
        codes[static_cast<std::size_t>((n * columns + k) / 8)] |= code(n, k) << (4 * (k % 8));
    }
    std::vector<float> scales;
    for (std::int64_t i = 0; i < rows * groups(); ++i) scales.push_back(scale(i / groups(), i % groups()));
    const std::int64_t shape[] = {rows, columns};
    std::vector<TestTensor> out{
        {name + "_packed", "I32", {rows, columns / 8}, words(codes)},
        {name + "_scale", scale_dtype, {rows, groups()}, floats(scales, *dtype_from_safetensors(scale_dtype))},
        {name + "_shape", "I64", {2}, std::string(reinterpret_cast<const char*>(shape), sizeof shape)}};
    if (zero_point) out.push_back({name + "_zero_point", "I32", {rows / 8, groups()}, words(zero_words())});
    return out;
  }

  std::vector<std::uint32_t> zero_words() const {
    std::vector<std::uint32_t> out(static_cast<std::size_t>(rows / 8 * groups()));
    for (std::int64_t n = 0; n < rows; ++n) {
      for (std::int64_t g = 0; g < groups(); ++g)
        out[static_cast<std::size_t>(n / 8 * groups() + g)] |= zero_point(n, g) << (4 * (n % 8));
    }
    return out;
  }

  ordered_json group() const {
    return {{"targets", {"Linear"}},
            {"weights",
             {{"num_bits", 4},
              {"type", "int"},
              {"symmetric", zero_point == nullptr},
              {"strategy", "group"},
              {"group_size", group_size}}}};
  }
};

inline std::uint32_t code_of(std::int64_t n, std::int64_t k) { return static_cast<std::uint32_t>((n + 3 * k) % 16); }
inline float scale_of(std::int64_t n, std::int64_t g) {
  return static_cast<float>(n + 1) / static_cast<float>(16 << g % 8);
}

inline void write_hand_made(const fs::path& directory, const std::vector<std::pair<std::string, HandMade>>& weights) {
  std::vector<TestTensor> tensors{float_tensor("norm.weight", {16})};
  ordered_json groups = ordered_json::object();
  for (const auto& [name, weight] : weights) {
    for (TestTensor& tensor : weight.tensors(name)) tensors.push_back(std::move(tensor));
    groups["group_" + std::to_string(groups.size())] = weight.group();
  }
  write_text(directory / "model.safetensors", safetensors(tensors));
  const ordered_json config{{"model_type", "foo"},
                            {"quantization_config",
                             {{"quant_method", "compressed-tensors"},
                              {"format", "pack-quantized"},
                              {"quantization_status", "compressed"},
                              {"config_groups", groups}}},
                            {"dtype", "bfloat16"}};
  write_text(directory / "config.json", config.dump());
}

inline fs::path tiny() { return test_data() / "tiny-llama"; }

inline nlohmann::json quantization_of(const fs::path& directory) {
  return nlohmann::json::parse(read_text(directory / "config.json")).at("quantization_config");
}

}  // namespace halfbyte::testing
