// Beginnings of numbers: which of them some number within bounds begins with. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string>

namespace halfbyte::serving {

struct SchemaNode;

// Characters that a number which begins with `text` needs at least to end within the node's bounds; 0: it may end here;
// SchemaNode::kEndless: no number begins so. Numbers are written with 15 digits at most, and 9 behind the point; with
// an exponent of two digits where there are no bounds.
std::int64_t rest_of_number(const std::string& text, const SchemaNode& node);

inline std::int64_t shortest_number(const SchemaNode& node) { return rest_of_number("", node); }

}  // namespace halfbyte::serving
