// Reads a pickle as data: an interpreter of a fixed list of opcodes and names, which can build containers, numbers,
// text and descriptions of tensors, and nothing else. No code is ever found, imported or called.
// Source: CPython, Lib/pickletools.py (opcodes); PyTorch, torch/serialization.py and torch/_utils.py (names).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <halfbyte/dtype.h>

namespace halfbyte::files::pickle {

// Units: bytes. A model of a hundred thousand tensors has 20 MB.
inline constexpr std::uint64_t kMaxPickleBytes = std::uint64_t{64} << 20;

enum class Kind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kBytes,
  kTuple,
  kList,
  kDict,
  kDtype,
  kName,     // of something that can be called
  kStorage,  // what tensors' values lie in
  kTensor,
};

// A handle: containers and tensors are shared, never copied, so that what a pickle builds stays in proportion to it.
struct Value {
  Kind kind = Kind::kNone;
  std::int64_t number = 0;  // a bool, an int, a Dtype; else an index into the Pickle
};

struct Storage {
  std::string_view key;
  std::optional<Dtype> dtype;  // nothing: bytes, to which the tensors give a dtype
  std::int64_t size = 0;       // Units: values
};

// A view of a storage. Units: values.
struct Tensor {
  std::int64_t storage = 0;  // index into Pickle::storages
  Dtype dtype = Dtype::kFloat32;
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape, strides;  // of the same length; nothing else is checked
};

struct Pickle {
  Value root;
  std::size_t size_bytes = 0;                  // up to and with its last opcode
  std::vector<std::string_view> texts;         // of the bytes that were read
  std::vector<std::vector<Value>> containers;  // a dict: key, value, key, value ...
  std::vector<Storage> storages;
  std::vector<Tensor> tensors;

  std::string_view text(Value value) const { return texts[static_cast<std::size_t>(value.number)]; }
  std::span<const Value> items(Value value) const { return containers[static_cast<std::size_t>(value.number)]; }
  const Tensor& tensor(Value value) const { return tensors[static_cast<std::size_t>(value.number)]; }
};

// `bytes` must outlive the result. Errors: kUnsupported naming what the pickle would have called, or an opcode or
// protocol that state dicts do not have; kCorrupt. `where` begins each message.
Pickle read_pickle(std::string_view bytes, const std::string& where);

}  // namespace halfbyte::files::pickle
