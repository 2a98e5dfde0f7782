// A JSON schema as what its texts consist of. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace halfbyte::serving {

struct SchemaNode;

struct SchemaProperty {
  std::string key;    // as JSON writes it, in quotes
  std::string ascii;  // the same with escapes instead of other characters than ASCII's
  const SchemaNode* value;
  bool is_required;
};

// What a value may be.
struct SchemaNode {
  enum class Kind { kLiterals, kString, kNumber, kObject, kMap, kArray, kAnyOf };
  Kind kind = Kind::kAnyOf;
  std::vector<std::string> literals = {};       // kLiterals: texts, one of which it is
  std::int64_t least = 0, most = 0;             // kString: characters; kArray: items; kMap: entries
  double low = 0, high = 0;                     // kNumber, bounds included
  bool is_integer = false, is_bounded = false;  // kNumber
  std::vector<SchemaProperty> properties = {};  // kObject, in the order in which they are written
  // kObject: of the properties from each one on, bytes of those that must come, each with what separates it.
  std::vector<std::int64_t> required_bytes = {};
  const SchemaNode* item = nullptr;             // kArray: of those behind `first`; kMap: of each value
  std::vector<const SchemaNode*> first = {};    // kArray: of the first ones, each its own
  std::vector<const SchemaNode*> choices = {};  // kAnyOf
  std::int64_t shortest = kEndless;             // bytes of its shortest text

  static constexpr std::int64_t kEndless = std::int64_t{1} << 40;
};

// Its nodes live as long as it does.
class Schema {
 public:
  // Errors: kInvalidArgument, naming the keyword and where it stands, for what is no schema, what is not supported, and
  // what nothing can fulfil.
  explicit Schema(const nlohmann::ordered_json& json);
  static std::shared_ptr<const Schema> any_object();

  const SchemaNode& root() const noexcept { return *root_; }

 private:
  friend class SchemaReader;
  Schema() = default;
  std::vector<std::unique_ptr<SchemaNode>> nodes_;
  const SchemaNode* root_ = nullptr;
};

}  // namespace halfbyte::serving
