// Which bytes may come next in a text that fulfils a schema. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/serving/constraints/schema.h"

namespace halfbyte::serving {

// One value that has begun, within those around it. Never changed, so that texts that go on otherwise share them.
struct SchemaFrame {
  const SchemaNode* node;
  std::int64_t state = 0;  // of its kind; see machine.cpp
  std::int64_t count = 0;  // of what a kind counts
  std::int64_t blanks = 0;
  std::string text = {};  // of numbers, literals and keys: what there is
  std::shared_ptr<const SchemaFrame> around = {};
  std::int64_t rest_around = 0;  // bytes that what is around needs at least behind it
  std::int64_t depth = 0;        // of values around

  bool operator==(const SchemaFrame&) const = default;
};
using SchemaStack = std::shared_ptr<const SchemaFrame>;  // null: the whole value has ended

// A text's beginning: all ways in which it can be read.
class SchemaMachine {
 public:
  explicit SchemaMachine(std::shared_ptr<const Schema> schema);

  // False: no text that fulfils the schema goes on so; the machine is then of no use.
  bool push(unsigned char byte);
  bool may_end() const;
  bool must_end() const;
  // Bytes that are needed at least to its end.
  std::int64_t rest() const;
  // Whether it stands within a string's characters, where most bytes may come.
  bool is_in_string() const;

 private:
  std::shared_ptr<const Schema> schema_;
  std::vector<SchemaStack> ways_;
};

}  // namespace halfbyte::serving
