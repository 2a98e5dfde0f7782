// Records of tensors that another tool packed, from config.json's quantization_config or what stands in its place.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/files/checkpoint.h"
#include "models/json/field.h"
#include "models/json/held.h"

namespace halfbyte::files {

// Records of all tensors. Those whose layout halfbyte does not compute on are replaced, in the checkpoint, by
// translated ones. `config` is the quantization_config.
using ReadQuantization = std::vector<TensorRecord>(Checkpoint& checkpoint, const JsonField& config);

// The JSON that describes how a checkpoint's tensors are packed.
struct Declaration {
  std::string method;     // its name in the table of methods
  models::HeldJson json;  // of a whole file
  std::string where;      // that file, for messages
  std::string key = {};   // the member of `json` that is the method's configuration; empty: all of it is
};
// Looks in one place; nothing: there is no declaration. Errors: kCorrupt.
using FindDeclaration = std::optional<Declaration>(const Checkpoint& checkpoint);

// A JSON file beside the weights; null: there is none. Errors: kCorrupt.
nlohmann::json read_beside(const Checkpoint& checkpoint, std::string_view name);

// Records of all tensors as the first declaration found (or the absence of any) explains them.
// Errors: kUnsupported naming a method, format or option that this version does not read; kCorrupt.
std::vector<TensorRecord> read_quantization(Checkpoint& checkpoint);

// Adds the records of the tensors that are no part of a packed one.
std::vector<TensorRecord> with_dense_records(const Checkpoint& checkpoint, std::vector<TensorRecord> packed);

[[noreturn]] void fail_unsupported(const std::string& where, const std::string& what);

}  // namespace halfbyte::files
