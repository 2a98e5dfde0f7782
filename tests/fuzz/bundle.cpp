#include "tests/fuzz/bundle.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <system_error>
#include <type_traits>

#include <nlohmann/json.hpp>

#include <halfbyte/dtype.h>

#include "loader/files/platform.h"
#include "tests/fuzz/target.h"
#include "tests/loader/files/formats/pytorch/torch_file.h"

namespace halfbyte::fuzz {
namespace {

using nlohmann::ordered_json;
using testing::TestTensor;

constexpr std::string_view kMark = "@@ ";
constexpr std::string_view kTensors = ".tensors", kZeros = ".zeros";
constexpr std::int64_t kMaxTensorsBytes = 1 << 18;  // of a file
constexpr std::size_t kZeroBytes = 1 << 16;

bool is_plain(std::string_view name) {
  const auto is_good = [](char c) { return c > ' ' && c < 127 && c != '/'; };
  return !name.empty() && name.size() <= 80 && name[0] != '.' && std::ranges::all_of(name, is_good);
}

// Where the next line begins that names a file.
std::size_t next_mark(std::string_view input, std::size_t from) {
  for (std::size_t at = input.find(kMark, from); at != input.npos; at = input.find(kMark, at + 1)) {
    if (at == 0 || input[at - 1] == '\n') return at;
  }
  return input.size();
}

template <class Value>
void append_as(const ordered_json& value, std::string& out) {
  constexpr bool kIsReal = std::is_floating_point_v<Value>;
  using Read = std::conditional_t<kIsReal, Value, std::int64_t>;
  const bool is_read = kIsReal ? value.is_number() : value.is_number_integer();
  const auto number = is_read ? static_cast<Value>(value.get<Read>()) : Value{};
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// The bytes of the values that are spelt out.
std::string spelt(const ordered_json& values, Dtype dtype) {
  if (values.is_string()) return values.get<std::string>();
  std::string out;
  if (is_weight_dtype(dtype)) {
    std::vector<float> floats;
    for (const auto& value : values) floats.push_back(value.is_number() ? value.get<float>() : 0.0F);
    return testing::floats(floats, dtype);
  }
  for (const auto& value : values) {
    if (dtype == Dtype::kFloat64) {
      append_as<double>(value, out);
    } else if (size_bytes(dtype) == 8) {
      append_as<std::int64_t>(value, out);
    }
    if (size_bytes(dtype) == 4) append_as<std::int32_t>(value, out);
    if (size_bytes(dtype) == 2) append_as<std::int16_t>(value, out);
    if (size_bytes(dtype) == 1) append_as<std::uint8_t>(value, out);
  }
  return out;
}

std::optional<std::vector<std::int64_t>> shape_of(const ordered_json& json) {
  std::vector<std::int64_t> out;
  if (!json.is_array()) return std::nullopt;
  for (const auto& length : json) {
    if (!length.is_number_integer()) return std::nullopt;
    out.push_back(length.get<std::int64_t>());
  }
  return out;
}

// Nothing: it would not fit.
std::optional<std::size_t> bytes_of(const std::vector<std::int64_t>& shape, std::int64_t width) {
  std::int64_t out = width;
  for (const std::int64_t length : shape) {
    if (length < 0 || __builtin_mul_overflow(out, length, &out) || out > kMaxTensorsBytes) return std::nullopt;
  }
  return static_cast<std::size_t>(out);
}

class Tensors {
 public:
  explicit Tensors(std::string_view input)
      : header_(ordered_json::parse(input.substr(0, input.find('\n')), nullptr, false)),
        pattern_(input.substr(std::min(input.size(), input.find('\n') + 1))) {}

  std::vector<TestTensor> all() {
    std::vector<TestTensor> out;
    if (!header_.is_object()) return out;
    for (const auto& [name, said] : header_.items()) {
      const bool is_tensor = said.is_array() && said.size() >= 2 && said[0].is_string();
      auto tensor = is_tensor ? tensor_of(name, said) : std::nullopt;
      if (tensor) out.push_back(std::move(*tensor));
    }
    return out;
  }

 private:
  std::optional<TestTensor> tensor_of(const std::string& name, const ordered_json& said) {
    const auto spelling = said[0].get<std::string>();
    const auto dtype = dtype_from_safetensors(spelling);
    auto shape = shape_of(said[1]);
    const auto size = shape ? bytes_of(*shape, dtype ? size_bytes(*dtype) : 1) : std::nullopt;
    if (!dtype || !size || used_ + *size > static_cast<std::size_t>(kMaxTensorsBytes)) return std::nullopt;
    used_ += *size;
    std::string bytes = said.size() > 2 ? spelt(said[2], *dtype) : std::string();
    while (bytes.size() < *size) bytes += pattern_.empty() ? '\0' : pattern_[next_++ % pattern_.size()];
    bytes.resize(*size);
    return TestTensor{name, spelling, std::move(*shape), std::move(bytes)};
  }

  ordered_json header_;
  std::string_view pattern_;
  std::size_t next_ = 0, used_ = 0;
};

}  // namespace

std::vector<BundledFile> unpack(std::string_view input) {
  std::vector<BundledFile> out;
  for (std::size_t at = next_mark(input, 0); at < input.size();) {
    const std::size_t name_at = at + kMark.size(), line = std::min(input.find('\n', name_at), input.size());
    at = next_mark(input, line);
    const std::string_view name = input.substr(name_at, line - name_at);
    const std::size_t begin = std::min(line + 1, input.size());
    // The line break before the next mark belongs to the mark.
    const std::size_t end = at < input.size() ? at - 1 : at;
    if (is_plain(name))
      out.push_back({std::string(name), std::string(input.substr(begin, end > begin ? end - begin : 0))});
  }
  return out;
}

Folder::Folder() {
  const char* given = std::getenv("HALFBYTE_FUZZ_SCRATCH");
  std::string pattern = (given ? fs::path(given) : fs::temp_directory_path()) / "halfbyte-fuzz-XXXXXX";
  require(mkdtemp(pattern.data()) != nullptr, "a folder for the inputs can be made");
  path_ = pattern;
}

Folder::~Folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void Folder::write(std::string_view name, std::string_view bytes, std::string_view rest) const {
  const fs::path path = *this / name;
  std::error_code ignored;
  fs::remove(path, ignored);
  files::OutputFile file(path, bytes.size() + rest.size());
  file.write(0, std::as_bytes(std::span(bytes)));
  file.write(bytes.size(), std::as_bytes(std::span(rest)));
}

void Folder::write(const std::vector<BundledFile>& files) const {
  static const std::string zeros(kZeroBytes, '\0');
  for (const auto& [name, bytes] : files) {
    const std::string_view view(name);
    if (view.ends_with(kZeros)) {
      write(view.substr(0, view.size() - kZeros.size()), bytes, zeros);
    } else if (view.ends_with(kTensors)) {
      const std::string_view real = view.substr(0, view.size() - kTensors.size());
      const auto tensors = Tensors(bytes).all();
      write(real, real.ends_with(".safetensors") ? testing::safetensors(tensors) : testing::torch_file(tensors));
    } else {
      write(name, bytes);
    }
  }
}

Folder& folder_of(std::string_view bundle) {
  static Folder folder;
  for (const auto& entry : fs::directory_iterator(folder.path())) fs::remove_all(entry.path());
  folder.write(unpack(bundle));
  return folder;
}

}  // namespace halfbyte::fuzz
