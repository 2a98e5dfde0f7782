#include "models/serving/constraints/schema_finish.h"

#include <algorithm>
#include <ranges>
#include <unordered_set>

#include <halfbyte/error.h>

#include "models/serving/constraints/lengths.h"

namespace halfbyte::serving {
namespace {

using Kind = SchemaNode::Kind;
constexpr std::int64_t kEndless = SchemaNode::kEndless;
constexpr std::size_t kMostChoices = 512, kMostSteps = 2 << 20, kMostBranches = 64, kMostTags = 32;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, "the schema has " + what);
}

// `node`, or its choices.
std::vector<const SchemaNode*> choices_of(const SchemaNode& node) {
  return node.kind == Kind::kAnyOf ? node.choices : std::vector<const SchemaNode*>{&node};
}

// A required property that is one of some literals.
struct Tag {
  const std::string* key;
  const std::vector<std::string>* literals;
};

std::vector<Tag> tags_of(const SchemaNode& object) {
  std::vector<Tag> out;
  for (const SchemaProperty& property : object.properties) {
    const std::vector<const SchemaNode*> values = choices_of(*property.value);
    const bool is_tag = property.is_required && values.size() == 1 && values[0]->kind == Kind::kLiterals;
    if (is_tag && out.size() < kMostTags) out.push_back({&property.key, &values[0]->literals});
  }
  return out;
}

bool share(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::ranges::any_of(a, [&](const std::string& text) { return std::ranges::find(b, text) != b.end(); });
}

bool differ(const SchemaNode& a, const SchemaNode& b) {
  if (a.kind == Kind::kLiterals && b.kind == Kind::kLiterals) return !share(a.literals, b.literals);
  if (a.kind == Kind::kLiterals || b.kind == Kind::kLiterals) return false;
  const auto is_group = [](const SchemaNode& node) { return node.kind == Kind::kObject || node.kind == Kind::kMap; };
  if (!is_group(a) || !is_group(b)) return a.kind != b.kind;
  const std::vector<Tag> mine = tags_of(a), others = tags_of(b);
  return std::ranges::any_of(mine, [&](const Tag& tag) {
    return std::ranges::any_of(
        others, [&](const Tag& other) { return *other.key == *tag.key && !share(*tag.literals, *other.literals); });
  });
}

std::int64_t length_of(SchemaNode& node) {
  std::int64_t out = kEndless;
  switch (node.kind) {
    case Kind::kLiterals:
      for (const std::string& text : node.literals) out = std::min(out, static_cast<std::int64_t>(text.size()));
      return out;
    case Kind::kString:
      return 2 + node.least;
    case Kind::kNumber:
      return node.shortest;
    case Kind::kMap:
      return 2;
    case Kind::kAnyOf:
      for (const SchemaNode* choice : node.choices) out = std::min(out, choice->shortest);
      return out;
    case Kind::kArray:
      return 1 + items_length(node, 0);
    case Kind::kObject:
      break;
  }
  node.required_bytes.assign(node.properties.size() + 1, 0);
  for (std::size_t i = node.properties.size(); i-- > 0;) {
    const SchemaProperty& property = node.properties[i];
    const std::int64_t own = 2 + static_cast<std::int64_t>(property.key.size()) + property.value->shortest;
    node.required_bytes[i] = std::min(kEndless, node.required_bytes[i + 1] + (property.is_required ? own : 0));
  }
  return 1 + properties_length(node, 0, false);
}

}  // namespace

void flatten_choices(const SchemaNodes& nodes) {
  std::size_t steps = 0;
  for (const auto& node : nodes) {
    if (node->kind != Kind::kAnyOf) continue;
    std::unordered_set<const SchemaNode*> seen;
    std::vector<const SchemaNode*> left = {node.get()}, found;
    while (!left.empty()) {
      const SchemaNode* const one = left.back();
      left.pop_back();
      if (!seen.insert(one).second) continue;
      if (++steps > kMostSteps) refuse("too many alternatives of alternatives");
      if (one->kind == Kind::kAnyOf) {
        left.insert(left.end(), one->choices.rbegin(), one->choices.rend());
      } else {
        found.push_back(one);
      }
    }
    if (found.size() > kMostChoices) refuse("more than " + std::to_string(kMostChoices) + " alternatives in one place");
    node->choices = std::move(found);
  }
}

bool are_exclusive(const std::vector<const SchemaNode*>& branches) {
  if (branches.size() > kMostBranches) return false;
  for (std::size_t i = 0; i < branches.size(); ++i) {
    for (std::size_t j = i + 1; j < branches.size(); ++j) {
      const std::vector<const SchemaNode*> mine = choices_of(*branches[i]), others = choices_of(*branches[j]);
      if (mine.size() * others.size() > kMostBranches) return false;
      for (const SchemaNode* a : mine) {
        if (!std::ranges::all_of(others, [&](const SchemaNode* b) { return differ(*a, *b); })) return false;
      }
    }
  }
  return true;
}

// From the parts up, until nothing changes; parts stand behind what they are parts of, most of them.
void measure(const SchemaNodes& nodes) {
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (const auto& node : std::views::reverse(nodes)) {
      const std::int64_t now = std::min(kEndless, length_of(*node));
      has_changed |= now < node->shortest;
      node->shortest = std::min(node->shortest, now);
    }
  }
}

}  // namespace halfbyte::serving
