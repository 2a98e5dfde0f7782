// All names that a state dict's pickle may refer to. For the interpreter.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <halfbyte/dtype.h>

namespace halfbyte::files::pickle {

enum class Meaning : std::uint8_t {
  kOrderedDict,      // () or (pairs)
  kSize,             // (lengths)
  kTensor,           // (storage, offset, shape, strides, ...)
  kTensorWithDtype,  // (storage, offset, shape, strides, requires_grad, hooks, dtype, ...)
  kParameter,        // (tensor, requires_grad, hooks)
  kStorageType,      // named in a storage's persistent id; called never
  kDtype,            // a value; called never
};

struct Name {
  std::string_view module;
  std::string_view name;
  Meaning meaning;
  std::optional<Dtype> dtype = std::nullopt;  // kStorageType: nothing, its values are bytes
};

// Null: not on the list.
const Name* find_name(std::string_view module, std::string_view name) noexcept;
// The same by position, to which a Value refers.
std::int64_t index_of(const Name& name) noexcept;
const Name& name_at(std::int64_t index) noexcept;

}  // namespace halfbyte::files::pickle
