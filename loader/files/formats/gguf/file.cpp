#include "loader/files/formats/gguf/file.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/header.h"
#include "loader/files/printable.h"

namespace halfbyte::files {
namespace {

constexpr std::uint64_t kMaxListItems = std::uint64_t{1} << 24;  // of those that are read

bool is_integer(GgufValueType type) noexcept {
  return type != GgufValueType::kFloat32 && type != GgufValueType::kFloat64 && type != GgufValueType::kBool &&
         type != GgufValueType::kString && type != GgufValueType::kArray;
}

// What fits a signed 64-bit integer.
std::optional<std::int64_t> to_integer(GgufValueType type, std::uint64_t bits) {
  switch (type) {
    case GgufValueType::kInt8:
      return static_cast<std::int8_t>(bits);
    case GgufValueType::kInt16:
      return static_cast<std::int16_t>(bits);
    case GgufValueType::kInt32:
      return static_cast<std::int32_t>(bits);
    case GgufValueType::kInt64:
      return static_cast<std::int64_t>(bits);
    default:
      if (bits > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
      return static_cast<std::int64_t>(bits);
  }
}

std::size_t item_bytes(GgufValueType type) noexcept {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    default:
      return 8;
  }
}

// 9.99999974737875e-06, which is 1e-5 in float32, as 1e-05.
double shortest(float value) {
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.begin(), text.end(), value).ptr;
  double out = 0;
  std::from_chars(text.begin(), end, out);
  return out;
}

}  // namespace

bool starts_as_gguf(const InputFile& file) {
  std::array<char, 4> magic{};
  if (file.size_bytes() < magic.size()) return false;
  file.read(0, std::as_writable_bytes(std::span(magic)));
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

GgufFile::GgufFile(std::shared_ptr<const InputFile> file) : file_(std::move(file)) {
  GgufHeader header = read_gguf_header(*file_);
  values_ = std::move(header.values);
  tensors_ = std::move(header.tensors);
  data_offset_ = header.data_offset;
}

void GgufFile::fail(ErrorCode code, const std::string& problem) const {
  throw Error(code, printable_path(file_->path()) + ": " + problem);
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const noexcept {
  const auto found = std::ranges::find(tensors_, name, &GgufTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

const GgufValue* GgufFile::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool GgufFile::is_list(const std::string& key) const {
  const GgufValue* value = find(key);
  return value && value->is_list;
}

const GgufValue* GgufFile::find_list(const std::string& key) const {
  const GgufValue* value = find(key);
  if (value && !value->is_list) fail(ErrorCode::kCorrupt, "metadata " + in_quotes(key) + " is no list");
  if (value && value->count > kMaxListItems)
    fail(ErrorCode::kCorrupt, "the list " + in_quotes(key) + " has " + std::to_string(value->count) + " items");
  return value;
}

std::uint64_t GgufFile::list_size(const std::string& key) const {
  const GgufValue* value = find_list(key);
  return value ? value->count : 0;
}

std::optional<std::string> GgufFile::text(const std::string& key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  if (value->is_list || value->type != GgufValueType::kString)
    fail(ErrorCode::kCorrupt, "metadata " + in_quotes(key) + " is no text");
  return value->text;
}

std::optional<std::int64_t> GgufFile::integer(const std::string& key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  const auto out = value->is_list || !is_integer(value->type) ? std::nullopt : to_integer(value->type, value->bits);
  if (!out) fail(ErrorCode::kCorrupt, "metadata " + in_quotes(key) + " is no integer");
  return out;
}

std::optional<double> GgufFile::number(const std::string& key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  double out = std::numeric_limits<double>::quiet_NaN();
  if (value->is_list) {
    out = std::numeric_limits<double>::quiet_NaN();
  } else if (value->type == GgufValueType::kFloat32) {
    out = shortest(std::bit_cast<float>(static_cast<std::uint32_t>(value->bits)));
  } else if (value->type == GgufValueType::kFloat64) {
    out = std::bit_cast<double>(value->bits);
  } else if (is_integer(value->type)) {
    out = static_cast<double>(*integer(key));
  }
  if (!std::isfinite(out)) fail(ErrorCode::kCorrupt, "metadata " + in_quotes(key) + " is no finite number");
  return out;
}

std::optional<bool> GgufFile::boolean(const std::string& key) const {
  const GgufValue* value = find(key);
  if (!value) return std::nullopt;
  if (value->is_list || value->type != GgufValueType::kBool)
    fail(ErrorCode::kCorrupt, "metadata " + in_quotes(key) + " is neither true nor false");
  return value->bits != 0;
}

std::vector<std::byte> GgufFile::list_bytes(const GgufValue& list) const {
  std::vector<std::byte> out(list.size_bytes);
  file_->read(list.offset, out);
  return out;
}

// The lengths were within the list when the header was read; the file may have changed since.
std::optional<std::vector<std::string>> GgufFile::texts(const std::string& key) const {
  const GgufValue* list = find_list(key);
  if (!list) return std::nullopt;
  if (list->type != GgufValueType::kString)
    fail(ErrorCode::kCorrupt, "the list " + in_quotes(key) + " is not of texts");
  const std::vector<std::byte> bytes = list_bytes(*list);
  std::vector<std::string> out;
  out.reserve(list->count);
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < list->count; ++i) {
    std::uint64_t length = 0;
    if (bytes.size() - at >= sizeof length) std::memcpy(&length, bytes.data() + at, sizeof length);
    at += sizeof length;
    if (at > bytes.size() || length > bytes.size() - at) fail(ErrorCode::kCorrupt, "changed while it was read");
    out.emplace_back(reinterpret_cast<const char*>(bytes.data()) + at, length);
    at += length;
  }
  return out;
}

std::optional<std::vector<float>> GgufFile::floats(const std::string& key) const {
  const GgufValue* list = find_list(key);
  if (!list) return std::nullopt;
  if (list->type != GgufValueType::kFloat32)
    fail(ErrorCode::kCorrupt, "the list " + in_quotes(key) + " is not of 32-bit floating-point numbers");
  std::vector<float> out(list->count);
  file_->read(list->offset, std::as_writable_bytes(std::span(out)));
  return out;
}

std::optional<std::vector<std::int64_t>> GgufFile::integers(const std::string& key) const {
  const GgufValue* list = find_list(key);
  if (!list) return std::nullopt;
  if (!is_integer(list->type) && list->type != GgufValueType::kBool)
    fail(ErrorCode::kCorrupt, "the list " + in_quotes(key) + " is not of integers");
  const std::vector<std::byte> bytes = list_bytes(*list);
  const std::size_t width = item_bytes(list->type);
  std::vector<std::int64_t> out(list->count);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * width, width);
    const auto value = to_integer(list->type, bits);
    if (!value) fail(ErrorCode::kCorrupt, "the list " + in_quotes(key) + " has an integer beyond 2^63");
    out[i] = *value;
  }
  return out;
}

}  // namespace halfbyte::files
