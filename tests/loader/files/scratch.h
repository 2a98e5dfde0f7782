// Checkpoints made by hand in directories that go away. For tests of files and of the converter.
#pragma once

#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <halfbyte/dtype.h>
#include <halfbyte/error.h>
#include <halfbyte/linear.h>

#include "tests/catch.h"

namespace halfbyte::testing {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

class Scratch {
 public:
  Scratch() {
    static std::atomic<int> counter = 0;
    path_ =
        fs::temp_directory_path() / ("halfbyte-test-" + std::to_string(::getpid()) + "-" + std::to_string(counter++));
    fs::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& path() const noexcept { return path_; }
  fs::path operator/(const fs::path& name) const { return path_ / name; }

 private:
  fs::path path_;
};

inline void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string read_text(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

inline std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(directory)) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

// Every file's bytes, by name.
inline std::vector<std::pair<std::string, std::string>> contents_of(const fs::path& directory) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const std::string& name : names_in(directory)) out.emplace_back(name, read_text(directory / name));
  return out;
}

struct TestTensor {
  std::string name;
  std::string dtype;  // as safetensors spells it
  std::vector<std::int64_t> shape;
  std::string bytes;
};

inline std::string with_length(const std::string& header, std::optional<std::uint64_t> length = std::nullopt) {
  const std::uint64_t size = length.value_or(header.size());
  std::string out(sizeof size, '\0');
  std::memcpy(out.data(), &size, sizeof size);
  return out + header;
}

inline std::string safetensors(const std::vector<TestTensor>& tensors) {
  ordered_json header = ordered_json::object();
  std::string data;
  for (const TestTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return with_length(header.dump()) + data;
}

// `values` as float32, float16 or bfloat16 bytes.
inline std::string floats(const std::vector<float>& values, Dtype dtype) {
  std::string out(values.size() * static_cast<std::size_t>(size_bytes(dtype)), '\0');
  quant::convert(reinterpret_cast<const std::byte*>(values.data()), Dtype::kFloat32,
                 reinterpret_cast<std::byte*>(out.data()), dtype, static_cast<std::int64_t>(values.size()));
  return out;
}

// A matrix or vector of small, varied, exactly repeatable values.
inline TestTensor float_tensor(const std::string& name, std::vector<std::int64_t> shape,
                               Dtype dtype = Dtype::kBfloat16) {
  std::size_t count = 1;
  for (const std::int64_t dimension : shape) count *= static_cast<std::size_t>(dimension);
  std::vector<float> values(count);
  std::uint32_t state = static_cast<std::uint32_t>(name.size()) * 2654435761U + 12345U;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<int>(state >> 16) - 32768) / 65536.0F;
  }
  return {name, std::string(info(dtype).safetensors), std::move(shape), floats(values, dtype)};
}

// A directory with config.json (left out when null) and one safetensors file.
inline void write_checkpoint(const fs::path& directory, const std::vector<TestTensor>& tensors,
                             const ordered_json& config = ordered_json::object()) {
  fs::create_directories(directory);
  if (!config.is_null()) write_text(directory / "config.json", config.dump());
  write_text(directory / "model.safetensors", safetensors(tensors));
}

// One layer of Llama, small enough to read.
inline ordered_json llama_config(bool is_tied = false) {
  return {{"architectures", ordered_json::array({"LlamaForCausalLM"})},
          {"model_type", "llama"},
          {"hidden_size", 32},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"head_dim", 16},
          {"intermediate_size", 64},
          {"vocab_size", 16},
          {"max_position_embeddings", 64},
          {"tie_word_embeddings", is_tied},
          {"torch_dtype", "bfloat16"}};
}

inline std::vector<TestTensor> llama_tensors(bool has_head = true, Dtype dtype = Dtype::kBfloat16) {
  const std::string layer = "model.layers.0.";
  std::vector<TestTensor> out{float_tensor("model.embed_tokens.weight", {16, 32}, dtype),
                              float_tensor(layer + "input_layernorm.weight", {32}, dtype),
                              float_tensor(layer + "self_attn.q_proj.weight", {32, 32}, dtype),
                              float_tensor(layer + "self_attn.k_proj.weight", {16, 32}, dtype),
                              float_tensor(layer + "self_attn.v_proj.weight", {16, 32}, dtype),
                              float_tensor(layer + "self_attn.o_proj.weight", {32, 32}, dtype),
                              float_tensor(layer + "post_attention_layernorm.weight", {32}, dtype),
                              float_tensor(layer + "mlp.gate_proj.weight", {64, 32}, dtype),
                              float_tensor(layer + "mlp.up_proj.weight", {64, 32}, dtype),
                              float_tensor(layer + "mlp.down_proj.weight", {32, 64}, dtype),
                              float_tensor("model.norm.weight", {32}, dtype)};
  if (has_head) out.push_back(float_tensor("lm_head.weight", {16, 32}, dtype));
  return out;
}

// Fails the test unless `work` throws an Error with this code whose message is one line holding every part.
inline void check_error(ErrorCode code, const std::vector<std::string>& parts, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    const std::string message = error.what();
    INFO("message: " << message);
    CHECK(static_cast<int>(error.code()) == static_cast<int>(code));
    CHECK(message.find('\n') == std::string::npos);
    for (const std::string& part : parts) {
      INFO("wanted part: " << part);
      CHECK(message.find(part) != std::string::npos);
    }
    return;
  }
  FAIL("no error was thrown");
}

inline fs::path test_data() { return HALFBYTE_TEST_DATA_DIR; }

// The folder of models and fixtures beside the repository, which may be absent.
inline fs::path shared_data() {
  const char* set = std::getenv("HALFBYTE_SHARED_DIR");
  return set ? fs::path(set) : fs::path(HALFBYTE_SHARED_DIR);
}

}  // namespace halfbyte::testing
