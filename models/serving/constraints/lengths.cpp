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

// In the shorter of its spellings that begin so; kEndless: none does.
std::int64_t rest_of_key(const SchemaProperty& property, const std::string& text) {
  std::int64_t out = kEndless;
  for (const std::string* spelling : {&property.key, &property.ascii}) {
    if (spelling->starts_with(text)) out = std::min(out, static_cast<std::int64_t>(spelling->size() - text.size()));
  }
  return out;
}

// Of an object whose next key has begun, or must.
std::int64_t rest_with_key(const SchemaFrame& frame) {
  const SchemaNode& node = *frame.node;
  std::int64_t out = kEndless;
  for (std::size_t i = static_cast<std::size_t>(frame.count); i < node.properties.size(); ++i) {
    const SchemaProperty& property = node.properties[i];
    out = std::min(
        out, rest_of_key(property, frame.text) + 1 + property.value->shortest + properties_length(node, i + 1, true));
    if (property.is_required) break;
  }
  return out;
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
    case kNext:
      return rest_with_key(frame);
    case kColon:
      return 1 + node.properties[at].value->shortest + properties_length(node, at + 1, true);
    case kValue:
      return node.properties[at].value->shortest + properties_length(node, at + 1, true);
    default:
      return properties_length(node, at, true);
  }
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
  const std::int64_t bytes = object.required_bytes[from];  // a comma each
  return std::min(kEndless, 1 + bytes - (bytes > 0 && !has_some ? 1 : 0));
}

std::int64_t rest_of(const SchemaStack& stack) {
  return stack ? std::min(kEndless, rest_of_frame(*stack) + stack->rest_around) : 0;
}

}  // namespace halfbyte::serving
