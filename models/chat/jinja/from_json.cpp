#include "models/chat/jinja/from_json.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include <nlohmann/json.hpp>

#include "models/chat/jinja/failure.h"

namespace halfbyte::models::jinja {
namespace {

using Json = nlohmann::ordered_json;

// None of them can be part of a text that forges a turn.
constexpr std::string_view kRoles[] = {"system",   "developer", "user",        "human",   "assistant",     "model",
                                       "gpt",      "chatbot",   "tool",        "tools",   "tool_response", "tool_call",
                                       "function", "ipython",   "observation", "context", "environment",   "documents"};

class Reader {
 public:
  Reader(Origin origin, Heap& heap) : origin_(origin), heap_(heap) {}

  Value read(const Json& json) {
    if (depth_ > kMaxValueDepth) refuse("JSON is nested deeper than " + std::to_string(kMaxValueDepth));
    if (json.is_string()) return heap_.text(json.get_ref<const std::string&>(), origin_);
    if (json.is_boolean()) return Value(json.get<bool>());
    if (json.is_number_float()) return Value(json.get<double>());
    if (json.is_number()) return whole(json);
    if (json.is_array()) return list(json);
    return json.is_object() ? dict(json) : Value();
  }

 private:
  static Value whole(const Json& json) {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (json.is_number_unsigned() && json.get<std::uint64_t>() > kMost) fail("a number has more than 64 bits");
    return Value(json.get<std::int64_t>());
  }

  Value list(const Json& json) {
    ++depth_;
    std::vector<Value> items;
    for (const Json& item : json) items.push_back(read(item));
    --depth_;
    return heap_.list(std::move(items));
  }

  Value dict(const Json& json) {
    ++depth_;
    Dict out;
    for (const auto& [key, item] : json.items()) {
      const bool is_role = key == "role" && item.is_string() &&
                           std::ranges::find(kRoles, item.get_ref<const std::string&>()) != std::end(kRoles);
      out.set(heap_.text(key, origin_), is_role ? heap_.text(item.get_ref<const std::string&>()) : read(item));
    }
    --depth_;
    return heap_.dict(std::move(out));
  }

  Origin origin_;
  Heap& heap_;
  int depth_ = 0;
};

std::size_t size_within(const Json& json, int depth) {
  constexpr std::size_t kOfValue = 16;
  std::size_t size = kOfValue;
  if (json.is_string()) size += json.get_ref<const std::string&>().size();
  if (!json.is_structured() || depth > kMaxValueDepth) return size;
  for (const auto& [key, item] : json.items()) size += key.size() + size_within(item, depth + 1);
  return size;
}

}  // namespace

Value value_of(const Json& json, Origin origin, Heap& heap) { return Reader(origin, heap).read(json); }

std::size_t size_of(const Json& json) { return size_within(json, 0); }

}  // namespace halfbyte::models::jinja
