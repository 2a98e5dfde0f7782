// A GGUF file's header: its metadata and its table of tensors, parsed and checked; no tensor is read.
// Source: ggml-org/ggml, docs/gguf.md and include/gguf.h (versions 2 and 3).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <halfbyte/error.h>

#include "loader/files/formats/gguf/types.h"
#include "loader/files/platform.h"

namespace halfbyte::files {

// As the file numbers them.
enum class GgufValueType : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// A value of the metadata. Items of lists are read from the file when a list is read, not before.
struct GgufValue {
  GgufValueType type = GgufValueType::kUint8;  // of a list: of its items
  bool is_list = false;
  std::uint64_t bits = 0;  // of a number: as stored, zero-extended
  std::string text;
  std::uint64_t count = 0, offset = 0, size_bytes = 0;  // of a list: items, and where they lie in the file
};

struct GgufTensor {
  std::string name;
  const GgmlType* type;
  std::vector<std::int64_t> shape;  // slowest dimension first, as everywhere in halfbyte
  std::uint64_t offset;             // from the start of the file
  std::uint64_t size_bytes;
};

// What a file says of the model. Errors of the accessors: kCorrupt naming the file and the key when a value is of
// another type than asked for, or out of range.
class GgufFile {
 public:
  // Reads the header. Errors: kCorrupt, kUnsupported (another version, a big-endian file, a type of tensor that is not
  // read), naming the file and what is wrong in it.
  explicit GgufFile(std::shared_ptr<const InputFile> file);

  const InputFile& file() const noexcept { return *file_; }
  std::shared_ptr<const InputFile> shared_file() const noexcept { return file_; }
  const std::vector<GgufTensor>& tensors() const noexcept { return tensors_; }
  std::uint64_t data_offset() const noexcept { return data_offset_; }
  const GgufTensor* find_tensor(std::string_view name) const noexcept;

  bool has(const std::string& key) const { return values_.contains(key); }
  bool is_list(const std::string& key) const;
  std::optional<std::string> text(const std::string& key) const;
  std::optional<std::int64_t> integer(const std::string& key) const;
  std::optional<double> number(const std::string& key) const;  // float32 ones as their shortest decimal spelling
  std::optional<bool> boolean(const std::string& key) const;
  // Lists; nothing when absent.
  std::optional<std::vector<std::string>> texts(const std::string& key) const;
  std::optional<std::vector<float>> floats(const std::string& key) const;
  std::optional<std::vector<std::int64_t>> integers(const std::string& key) const;  // false is 0, true 1
  std::uint64_t list_size(const std::string& key) const;                            // 0 when absent

  // An error of this code that says of which file.
  [[noreturn]] void fail(ErrorCode code, const std::string& problem) const;

 private:
  const GgufValue* find(const std::string& key) const;
  const GgufValue* find_list(const std::string& key) const;
  std::vector<std::byte> list_bytes(const GgufValue& list) const;

  std::shared_ptr<const InputFile> file_;
  std::map<std::string, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  std::uint64_t data_offset_ = 0;
};

bool starts_as_gguf(const InputFile& file);

}  // namespace halfbyte::files
