#include "models/serving/constraints/lengths.h"

#include <algorithm>

#include "models/serving/constraints/machine_states.h"
#include "models/serving/constraints/number_prefix.h"

namespace halfbyte::serving {
namespace {

using Kind = SchemaNode::Kind;
constexpr std::int64_t kEndless = SchemaNode::kEndless;

std::int64_t item_length(const SchemaNode& list, std::int64_t index) {
  const bool is_own = index < static_cast<std::int64_t>(list.first.size());
  const SchemaNode* const item = is_own ? list.first[static_cast<std::size_t>(index)] : list.item;
  return item ? item->shortest : kEndless;
}

// A property with its key, and all that must come behind it.
std::int64_t length_with(const SchemaNode& object, std::size_t property) {
  const SchemaProperty& one = object.properties[property];
  return static_cast<std::int64_t>(one.key.size()) + 1 + one.value->shortest +
         properties_length(object, property + 1, true);
}

std::int64_t rest_of_literals(const SchemaFrame& frame) {
  std::int64_t out = kEndless;
  for (const std::string& literal : frame.node->literals) {
    if (literal.starts_with(frame.text))
      out = std::min(out, static_cast<std::int64_t>(literal.size() - frame.text.size()));
  }
  return out;
}

std::int64_t rest_of_string(const SchemaFrame& frame) {
  const std::int64_t now = std::max<std::int64_t>(0, frame.node->least - frame.count) + 1;
  const std::int64_t later = std::max<std::int64_t>(0, frame.node->least - frame.count - 1) + 1;
  switch (frame.state) {
    case kQuote:
      return 1 + now;
    case kCharacters:
      return now;
    case kEscape:
      return 1 + later;
    case kBytes:
      return (frame.blanks >> 16) + later;
    default:
      return kHex4 + 1 - frame.state + later;
  }
}

std::int64_t rest_of_array(const SchemaFrame& frame) {
  switch (frame.state) {
    case kOpen:
      return 1 + items_length(*frame.node, 0);
    case kNext:
      return item_length(*frame.node, frame.count) + items_length(*frame.node, frame.count + 1);
    default:
      return items_length(*frame.node, frame.count);
  }
}

std::int64_t rest_of_map(const SchemaFrame& frame) {
  const std::int64_t item = frame.node->item->shortest;
  switch (frame.state) {
    case kOpen:
      return 2;
    case kNext:
      return 2 + 1 + item + 1;
    case kColon:
      return 1 + item + 1;
    case kValue:
      return item + 1;
    default:
      return 1;
  }
}

// In the shorter of its spellings.
std::int64_t rest_of_key(const SchemaFrame& frame) {
  const SchemaProperty& property = frame.node->properties[static_cast<std::size_t>(frame.count)];
  const std::string& spelling = property.key.starts_with(frame.text) ? property.key : property.ascii;
  return static_cast<std::int64_t>(spelling.size() - frame.text.size());
}

std::int64_t rest_of_object(const SchemaFrame& frame) {
  const SchemaNode& node = *frame.node;
  const auto at = static_cast<std::size_t>(frame.count);
  switch (frame.state) {
    case kOpen:
      return 1 + properties_length(node, 0, false);
    case kFirst:
      return properties_length(node, 0, false);
    case kKey:
      return rest_of_key(frame) + length_with(node, at) - static_cast<std::int64_t>(node.properties[at].key.size());
    case kValue:
      return node.properties[at].value->shortest + properties_length(node, at + 1, true);
    case kNext:
      break;
    default:
      return properties_length(node, at, true);
  }
  std::int64_t out = kEndless;
  for (std::size_t i = at; i < node.properties.size(); ++i) {
    out = std::min(out, length_with(node, i));
    if (node.properties[i].is_required) break;
  }
  return out;
}

std::int64_t rest_of_frame(const SchemaFrame& frame) {
  switch (frame.node->kind) {
    case Kind::kLiterals:
      return rest_of_literals(frame);
    case Kind::kNumber:
      return frame.text.empty() ? frame.node->shortest : rest_of_number(frame.text, *frame.node);
    case Kind::kString:
      return rest_of_string(frame);
    case Kind::kArray:
      return rest_of_array(frame);
    case Kind::kMap:
      return rest_of_map(frame);
    case Kind::kObject:
      return rest_of_object(frame);
    case Kind::kAnyOf:
      break;
  }
  return frame.node->shortest;
}

}  // namespace

std::int64_t items_length(const SchemaNode& list, std::int64_t from) {
  const auto own = static_cast<std::int64_t>(list.first.size());
  std::int64_t out = 1;
  for (std::int64_t i = from; i < std::min(list.least, own); ++i) out += (i > 0 ? 1 : 0) + item_length(list, i);
  const std::int64_t others = list.least - std::max(from, own);
  if (others > 0) out += others * (std::min(item_length(list, own), kEndless) + 1) - (std::max(from, own) == 0 ? 1 : 0);
  return std::min(out, kEndless);
}

std::int64_t properties_length(const SchemaNode& object, std::size_t from, bool has_some) {
  std::int64_t out = 1;
  for (std::size_t i = from; i < object.properties.size(); ++i) {
    const SchemaProperty& property = object.properties[i];
    if (!property.is_required) continue;
    out += (has_some ? 1 : 0) + static_cast<std::int64_t>(property.key.size()) + 1 + property.value->shortest;
    has_some = true;
  }
  return std::min(out, kEndless);
}

std::size_t required_from(const SchemaNode& object, std::size_t from) {
  std::size_t out = 0;
  for (std::size_t i = from; i < object.properties.size(); ++i) out += object.properties[i].is_required;
  return out;
}

std::int64_t rest_of(const SchemaStack& stack) {
  std::int64_t out = 0;
  for (const SchemaFrame* frame = stack.get(); frame && out < kEndless; frame = frame->around.get())
    out += rest_of_frame(*frame);
  return std::min(out, kEndless);
}

}  // namespace halfbyte::serving
