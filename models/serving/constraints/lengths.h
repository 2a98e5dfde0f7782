// How many bytes texts need at least: of parts of a schema, and of a text that has begun. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/serving/constraints/machine.h"
#include "models/serving/constraints/schema.h"

namespace halfbyte::serving {

// Of a list's items from one on, with what separates them and the ']'.
std::int64_t items_length(const SchemaNode& list, std::int64_t from);
// Of an object's properties that must come, from one on, with what separates them and the '}'. `has_some`: others are
// there before them.
std::int64_t properties_length(const SchemaNode& object, std::size_t from, bool has_some);
// Of everything that has begun and not ended.
std::int64_t rest_of(const SchemaStack& stack);

}  // namespace halfbyte::serving
