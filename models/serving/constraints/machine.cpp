#include "models/serving/constraints/machine.h"

#include <algorithm>

#include "models/serving/constraints/lengths.h"
#include "models/serving/constraints/machine_states.h"
#include "models/serving/constraints/number_prefix.h"

namespace halfbyte::serving {
namespace {

using Kind = SchemaNode::Kind;
using Ways = std::vector<SchemaStack>;

constexpr std::size_t kMostWays = 2048;
constexpr std::int64_t kMostDepth = 100;  // of lists and objects within others
constexpr std::size_t kMostCompared = 64;
constexpr std::int64_t kMostBlanks = 20;
constexpr std::int64_t kOneBlank = kMostBlanks + 1;

SchemaStack changed(const SchemaFrame& frame, std::int64_t state, std::int64_t count) {
  auto out = std::make_shared<SchemaFrame>(frame);
  out->state = state;
  out->count = count;
  out->blanks = 0;
  out->text.clear();
  return out;
}

SchemaStack with_text(const SchemaFrame& frame, std::string text) {
  auto out = std::make_shared<SchemaFrame>(frame);
  out->text = std::move(text);
  return out;
}

void step(const SchemaStack& top, unsigned char byte, Ways& out);

// Begins a value within `around`, and gives it its first byte.
void begin(const SchemaNode& node, const SchemaStack& around, unsigned char byte, Ways& out) {
  if (node.kind == Kind::kAnyOf) {
    for (const SchemaNode* choice : node.choices) begin(*choice, around, byte, out);
    return;
  }
  const std::int64_t depth = around ? around->depth + 1 : 0;
  const bool is_group = node.kind == Kind::kArray || node.kind == Kind::kMap || node.kind == Kind::kObject;
  if (is_group && depth > kMostDepth) return;
  auto frame = std::make_shared<SchemaFrame>();
  frame->node = &node;
  frame->around = around;
  frame->rest_around = rest_of(around);
  frame->depth = depth;
  step(std::move(frame), byte, out);
}

// Blanks between the parts of groups: one, or lines with some. False: it is none, or too many.
bool skip_blank(const SchemaFrame& frame, unsigned char byte, Ways& out) {
  const bool is_line = byte == '\n', is_blank = byte == ' ' || byte == '\t';
  if ((!is_line && !is_blank) || frame.blanks >= kMostBlanks) return false;
  if (is_line && frame.blanks != 0) return false;
  auto next = std::make_shared<SchemaFrame>(frame);
  next->blanks = is_line ? 1 : frame.blanks == 0 ? kOneBlank : frame.blanks + 1;
  out.push_back(std::move(next));
  return true;
}

void step_literals(const SchemaFrame& frame, unsigned char byte, Ways& out) {
  const std::string text = frame.text + static_cast<char>(byte);
  bool goes_on = false, ends = false;
  for (const std::string& literal : frame.node->literals) {
    ends |= literal == text;
    goes_on |= literal.size() > text.size() && literal.starts_with(text);
  }
  if (ends) out.push_back(frame.around);
  if (goes_on) out.push_back(with_text(frame, text));
}

void step_number(const SchemaFrame& frame, unsigned char byte, Ways& out) {
  const std::string text = frame.text + static_cast<char>(byte);
  if (rest_of_number(text, *frame.node) < SchemaNode::kEndless) out.push_back(with_text(frame, text));
  if (!frame.text.empty() && rest_of_number(frame.text, *frame.node) == 0 && frame.around)
    step(frame.around, byte, out);
}

// A character's first byte. Source: RFC 3629, section 4.
void begin_character(const SchemaFrame& frame, unsigned char byte, Ways& out) {
  std::int64_t left = 0, low = 0x80, high = 0xBF;
  if (byte >= 0xC2 && byte <= 0xDF) left = 1;
  if (byte >= 0xE0 && byte <= 0xEF) left = 2;
  if (byte >= 0xF0 && byte <= 0xF4) left = 3;
  if (left == 0) return;
  if (byte == 0xE0) low = 0xA0;
  if (byte == 0xED) high = 0x9F;
  if (byte == 0xF0) low = 0x90;
  if (byte == 0xF4) high = 0x8F;
  auto next = std::make_shared<SchemaFrame>(frame);
  next->state = kBytes;
  next->blanks = left << 16 | low << 8 | high;
  out.push_back(std::move(next));
}

void step_string(const SchemaFrame& frame, unsigned char byte, Ways& out) {
  const bool has_room = frame.count < frame.node->most;
  const bool is_hex = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
  const auto go = [&](std::int64_t state, std::int64_t more = 0) {
    out.push_back(changed(frame, state, frame.count + more));
  };
  switch (frame.state) {
    case kQuote:
      if (byte == '"') go(kCharacters);
      return;
    case kCharacters:
      if (byte == '"' && frame.count >= frame.node->least) out.push_back(frame.around);
      if (byte == '"' || byte < 0x20 || !has_room) return;
      if (byte >= 0x80) return begin_character(frame, byte, out);
      return byte == '\\' ? go(kEscape) : go(kCharacters, 1);
    case kEscape:
      if (byte == 'u') return go(kHex1);
      if (std::string_view("\"\\/bfnrt").find(static_cast<char>(byte)) != std::string_view::npos) go(kCharacters, 1);
      return;
    case kHex1:
    case kHex2:  // control characters, and no half of a pair
      if (byte == '0') go(frame.state + 1);
      return;
    case kHex3:
      if (is_hex) go(kHex4);
      return;
    case kHex4:
      if (is_hex) go(kCharacters, 1);
      return;
    default:
      break;
  }
  const std::int64_t left = frame.blanks >> 16, low = frame.blanks >> 8 & 0xFF, high = frame.blanks & 0xFF;
  if (byte < low || byte > high) return;
  if (left == 1) return go(kCharacters, 1);
  auto next = std::make_shared<SchemaFrame>(frame);
  next->blanks = (left - 1) << 16 | 0x80BF;
  out.push_back(std::move(next));
}

void step_array(const SchemaFrame& frame, unsigned char byte, Ways& out) {
  if (frame.state == kOpen) {
    if (byte == '[') out.push_back(changed(frame, kFirst, 0));
    return;
  }
  if (skip_blank(frame, byte, out)) return;
  const SchemaNode& node = *frame.node;
  const auto begin_item = [&] {
    if (frame.count >= node.most) return;
    const bool is_own = frame.count < static_cast<std::int64_t>(node.first.size());
    const SchemaNode* const item = is_own ? node.first[static_cast<std::size_t>(frame.count)] : node.item;
    if (item) begin(*item, changed(frame, kBehind, frame.count + 1), byte, out);
  };
  if (byte == ']' && frame.state != kNext && frame.count >= node.least) out.push_back(frame.around);
  if (frame.state == kFirst || frame.state == kNext) begin_item();
  if (frame.state == kBehind && byte == ',' && frame.count < node.most)
    out.push_back(changed(frame, kNext, frame.count));
}

const SchemaNode& key_node() {
  static const SchemaNode kNode = [] {
    SchemaNode node;
    node.kind = Kind::kString;
    node.most = 1 << 20;
    node.shortest = 2;
    return node;
  }();
  return kNode;
}

void step_map(const SchemaFrame& frame, unsigned char byte, Ways& out) {
  if (frame.state == kOpen) {
    if (byte == '{') out.push_back(changed(frame, kFirst, 0));
    return;
  }
  if (frame.state != kColon && skip_blank(frame, byte, out)) return;
  switch (frame.state) {
    case kFirst:
    case kNext:
      if (byte == '}' && frame.state == kFirst) out.push_back(frame.around);
      return begin(key_node(), changed(frame, kColon, frame.count), byte, out);
    case kColon:
      if (byte == ':') out.push_back(changed(frame, kValue, frame.count));
      return;
    case kValue:
      return begin(*frame.node->item, changed(frame, kBehind, frame.count + 1), byte, out);
    default:
      break;
  }
  if (byte == '}') out.push_back(frame.around);
  if (byte == ',' && frame.count < frame.node->most) out.push_back(changed(frame, kNext, frame.count));
}

// A key, of those that may come now: up to the first that must. `count`: the first that was not there yet.
void step_key(const SchemaFrame& frame, unsigned char byte, Ways& out) {
  const auto& properties = frame.node->properties;
  std::string text = frame.text + static_cast<char>(byte);
  bool goes_on = false;
  for (std::size_t i = static_cast<std::size_t>(frame.count); i < properties.size(); ++i) {
    const SchemaProperty& property = properties[i];
    if (property.key == text || property.ascii == text) {
      out.push_back(changed(frame, kColon, static_cast<std::int64_t>(i)));
      return;
    }
    goes_on |= property.key.starts_with(text) || property.ascii.starts_with(text);
    if (property.is_required) break;
  }
  if (!goes_on) return;
  auto next = std::make_shared<SchemaFrame>(frame);
  next->state = kKey;
  next->blanks = 0;
  next->text = std::move(text);
  out.push_back(std::move(next));
}

bool has_all(const SchemaFrame& frame) {
  return frame.node->required_bytes[static_cast<std::size_t>(frame.count)] == 0;
}

bool has_more(const SchemaFrame& frame) {
  return frame.count < static_cast<std::int64_t>(frame.node->properties.size());
}

void step_object(const SchemaFrame& frame, unsigned char byte, Ways& out) {
  if (frame.state == kOpen) {
    if (byte == '{') out.push_back(changed(frame, kFirst, 0));
    return;
  }
  if (frame.state == kKey) return step_key(frame, byte, out);
  if (frame.state == kColon) {
    if (byte == ':') out.push_back(changed(frame, kValue, frame.count));
    return;
  }
  if (skip_blank(frame, byte, out)) return;
  if (frame.state == kValue) {
    const SchemaNode& value = *frame.node->properties[static_cast<std::size_t>(frame.count)].value;
    return begin(value, changed(frame, kBehind, frame.count + 1), byte, out);
  }
  if (byte == '}' && frame.state != kNext && has_all(frame)) out.push_back(frame.around);
  if (frame.state == kFirst || frame.state == kNext) step_key(frame, byte, out);
  if (frame.state == kBehind && byte == ',' && has_more(frame)) out.push_back(changed(frame, kNext, frame.count));
}

void step(const SchemaStack& top, unsigned char byte, Ways& out) {
  if (!top || out.size() > kMostWays) return;
  switch (top->node->kind) {
    case Kind::kLiterals:
      return step_literals(*top, byte, out);
    case Kind::kString:
      return step_string(*top, byte, out);
    case Kind::kNumber:
      return step_number(*top, byte, out);
    case Kind::kArray:
      return step_array(*top, byte, out);
    case Kind::kMap:
      return step_map(*top, byte, out);
    case Kind::kObject:
      return step_object(*top, byte, out);
    case Kind::kAnyOf:
      return begin(*top->node, top->around, byte, out);
  }
}

// Read otherwise, and come to the same: a number that is an integer too.
bool same(const SchemaStack& a, const SchemaStack& b) { return a == b || (a && b && *a == *b); }

}  // namespace

SchemaMachine::SchemaMachine(std::shared_ptr<const Schema> schema) : schema_(std::move(schema)) {
  auto first = std::make_shared<SchemaFrame>();
  first->node = &schema_->root();
  ways_.push_back(std::move(first));
}

bool SchemaMachine::push(unsigned char byte) {
  Ways next;
  for (const SchemaStack& way : ways_) step(way, byte, next);
  ways_.clear();
  for (SchemaStack& way : next) {
    if (next.size() > kMostCompared ||
        std::ranges::none_of(ways_, [&](const SchemaStack& other) { return same(way, other); }))
      ways_.push_back(std::move(way));
  }
  return !ways_.empty();
}

bool SchemaMachine::may_end() const {
  return std::ranges::any_of(ways_, [](const SchemaStack& way) { return rest_of(way) == 0; });
}

bool SchemaMachine::must_end() const {
  return !ways_.empty() && std::ranges::all_of(ways_, [](const SchemaStack& way) { return !way; });
}

std::int64_t SchemaMachine::rest() const {
  std::int64_t out = SchemaNode::kEndless;
  for (const SchemaStack& way : ways_) out = std::min(out, rest_of(way));
  return out;
}

bool SchemaMachine::is_in_string() const {
  return std::ranges::any_of(ways_, [](const SchemaStack& way) {
    return way && way->node->kind == Kind::kString && way->state == kCharacters;
  });
}

}  // namespace halfbyte::serving
