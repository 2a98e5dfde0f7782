#include "tools/server/api/python_values.h"

#include <cctype>
#include <cstdint>
#include <string>
#include <utility>

namespace halfbyte::server {
namespace {

constexpr int kMostDepth = 16;

struct WordRow {
  std::string_view python, json;
};
constexpr WordRow kWords[] = {{"True", "true"},   {"true", "true"}, {"False", "false"},
                              {"false", "false"}, {"None", "null"}, {"null", "null"}};
constexpr std::pair<char, char> kEscapes[] = {{'n', '\n'}, {'t', '\t'},  {'r', '\r'},  {'b', '\b'},
                                              {'f', '\f'}, {'\\', '\\'}, {'\'', '\''}, {'"', '"'}};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Every function leaves `text` behind what it has read, and says false where something else stands there.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool arguments(Json& out) {
    out = Json::object();
    return items('\0', [&] {
      const std::string key = word();
      Json value;
      if (key.empty() || std::isdigit(static_cast<unsigned char>(key.front())) != 0 || !take('=') ||
          !this->value(value, 0))
        return false;
      out[key] = std::move(value);
      return true;
    });
  }

 private:
  bool value(Json& out, int depth) {
    skip_blanks();
    if (text_.empty() || depth > kMostDepth) return false;
    const char first = text_.front();
    if (first == '"' || first == '\'') return string(out);
    if (first == '[' || first == '(') return list(out, first == '[' ? ']' : ')', depth);
    if (first == '{') return dict(out, depth);
    if (is_word(first) && std::isdigit(static_cast<unsigned char>(first)) == 0) return named(out);
    return number(out);
  }

  bool string(Json& out) {
    const char quote = text_.front();
    std::string all;
    for (text_.remove_prefix(1); !text_.empty() && text_.front() != quote; text_.remove_prefix(1)) {
      if (text_.front() != '\\') {
        all += text_.front();
        continue;
      }
      text_.remove_prefix(1);
      if (text_.empty() || !escape(all)) return false;
    }
    out = std::move(all);
    return take(quote);
  }

  // One that Python does not know is text.
  bool escape(std::string& out) {
    for (const auto& [letter, value] : kEscapes) {
      if (letter != text_.front()) continue;
      out += value;
      return true;
    }
    const std::size_t digits = text_.front() == 'x' ? 2 : text_.front() == 'u' ? 4 : 0;
    if (digits == 0) return static_cast<void>(out += {'\\', text_.front()}), true;
    std::string json = "\"\\u" + std::string(4 - digits, '0') + std::string(text_.substr(1, digits)) + "\"";
    const std::optional<Json> parsed = parsed_json(json);  // half a pair of surrogates is none
    if (!parsed || !parsed->is_string()) return false;
    out += parsed->get<std::string>();
    text_.remove_prefix(digits);
    return true;
  }

  bool list(Json& out, char close, int depth) {
    out = Json::array();
    text_.remove_prefix(1);
    return items(close, [&] {
      out.emplace_back();
      return value(out.back(), depth + 1);
    });
  }

  bool dict(Json& out, int depth) {
    out = Json::object();
    text_.remove_prefix(1);
    return items('}', [&] {
      Json key, own;
      if (!value(key, depth + 1) || !key.is_string() || !take(':') || !value(own, depth + 1)) return false;
      out[key.get<std::string>()] = std::move(own);
      return true;
    });
  }

  // Items with commas between, up to `close`; of '\0', to a ')' or the end.
  template <class Item>
  bool items(char close, const Item& item) {
    std::size_t count = 0;
    while (!is_at(close)) {
      if (++count > kMostMembers || !item()) return false;
      if (!take(',') && !is_at(close)) return false;
    }
    return close == '\0' || take(close);
  }

  bool named(Json& out) {
    const std::string name = word();
    for (const auto& [python, json] : kWords) {
      if (name == python) return static_cast<void>(out = Json::parse(json)), true;
    }
    return false;
  }

  bool number(Json& out) {
    const std::size_t size = std::min(text_.find_first_not_of("+-.0123456789eE_"), text_.size());
    std::string spelt(text_.substr(0, size));
    if (const std::size_t dot = spelt.find('.'); dot != std::string::npos) {  // "1." and ".5", which JSON has not
      if (dot + 1 == spelt.size() || std::isdigit(static_cast<unsigned char>(spelt[dot + 1])) == 0)
        spelt.insert(dot + 1, "0");
      if (dot == 0 || std::isdigit(static_cast<unsigned char>(spelt[dot - 1])) == 0) spelt.insert(dot, "0");
    }
    std::optional<Json> parsed = parsed_json(spelt);
    if (!parsed || !parsed->is_number()) return false;
    out = std::move(*parsed);
    text_.remove_prefix(size);
    return true;
  }

  std::string word() {
    skip_blanks();
    std::size_t size = 0;
    while (size < text_.size() && is_word(text_[size])) ++size;
    std::string out(text_.substr(0, size));
    text_.remove_prefix(size);
    return out;
  }

  void skip_blanks() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size())); }
  bool is_at(char c) {
    skip_blanks();
    if (c == '\0') return text_.empty() || text_.front() == ')';
    return !text_.empty() && text_.front() == c;
  }
  bool take(char c) {
    if (c == '\0' || !is_at(c)) return false;
    text_.remove_prefix(1);
    return true;
  }

  std::string_view text_;
};

}  // namespace

std::optional<Json> keyword_arguments(std::string_view text) {
  Json out;
  return Reader(text).arguments(out) ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace halfbyte::server
