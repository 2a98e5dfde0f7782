#include "tools/server/api/bounded_json.h"

#include <vector>

namespace halfbyte::server {

std::string excess_in(std::string_view text) {
  std::vector<std::size_t> members;  // of the objects and lists that are open
  std::size_t values = 0;
  bool is_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_text) {
      if (c == '\\') ++i;
      is_text = c != '"';
      continue;
    }
    if (c == '"') is_text = true;
    if (c == '{' || c == '[') members.push_back(0);
    if ((c == '}' || c == ']') && !members.empty()) members.pop_back();
    if (c == ',') ++values;
    if (c == ':' && !members.empty() && ++members.back() > kMostMembers)
      return "has an object of more than " + std::to_string(kMostMembers) + " members";
    if (members.size() > kMostDepth) return "is nested deeper than " + std::to_string(kMostDepth) + " levels";
    if (values > kMostValues) return "has more than " + std::to_string(kMostValues) + " values";
  }
  return "";
}

std::optional<Json> parsed_json(const std::string& text) {
  if (!excess_in(text).empty()) return std::nullopt;
  Json out = Json::parse(text, nullptr, false);
  return out.is_discarded() ? std::nullopt : std::optional(std::move(out));
}

}  // namespace halfbyte::server
