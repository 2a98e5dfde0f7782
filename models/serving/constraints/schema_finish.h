// What a schema's nodes need once all of them are there.
#pragma once

#include <memory>
#include <vector>

#include "models/serving/constraints/schema.h"

namespace halfbyte::serving {

using SchemaNodes = std::vector<std::unique_ptr<SchemaNode>>;

// Choices of choices become choices, each once, so that none is a choice itself. Errors: kInvalidArgument for too many.
void flatten_choices(const SchemaNodes& nodes);

// Whether no value fulfils two of them, as far as kinds and literals say. Precondition: flattened.
bool are_exclusive(const std::vector<const SchemaNode*>& branches);

// Shortest texts. Precondition: flattened.
void measure(const SchemaNodes& nodes);

}  // namespace halfbyte::serving
