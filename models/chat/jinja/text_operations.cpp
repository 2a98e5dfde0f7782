#include "models/chat/jinja/text_operations.h"

#include <algorithm>

#include "models/chat/jinja/characters.h"
#include "models/chat/jinja/find.h"

namespace halfbyte::models::jinja {
namespace {

bool stands_in(std::string_view characters, std::string_view one) {
  for (std::size_t at = 0; at < characters.size(); at += character_size(characters, at)) {
    if (characters.substr(at, character_size(characters, at)) == one) return true;
  }
  return false;
}

struct HtmlEscape {
  char character;
  std::string_view text;
};
constexpr HtmlEscape kHtml[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};

// Where the character begins that ends before `end`.
std::size_t character_before(std::string_view text, std::size_t end) {
  for (std::size_t back = std::min<std::size_t>(4, end); back > 1; --back) {
    if (character_size(text, end - back) == back) return end - back;
  }
  return end - 1;
}

bool is_blank_at(std::string_view text, std::size_t at) { return is_space(character_at(text, at).code); }

std::size_t most_of(std::int64_t most) {
  return most < 0 ? static_cast<std::size_t>(-1) : static_cast<std::size_t>(most);
}

// What a part costs that is kept.
void add_part(Heap& heap, std::vector<Text>& parts, Text part) {
  heap.step_over(part.size());
  heap.expect((parts.size() + 1) * sizeof(Text) + part.held_bytes());
  parts.push_back(std::move(part));
}

// A line's break, from `at` on: its bytes. Source: str.splitlines().
std::size_t line_break_size(std::string_view text, std::size_t at) {
  if (text.substr(at).starts_with("\r\n")) return 2;
  const Character character = character_at(text, at);
  const char32_t code = character.code;
  const bool is_break = (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) ||
                        (code == 0x85 && character.size == 2) || code == 0x2028 || code == 0x2029;
  return is_break ? character.size : 0;
}

}  // namespace

Text stripped(const Text& text, const std::string* characters, Side side) {
  const std::string_view bytes = text.view();
  const auto goes = [&](std::size_t at, std::size_t size) {
    return characters ? stands_in(*characters, bytes.substr(at, size)) : is_blank_at(bytes, at);
  };
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (side != Side::kRight && begin < end && goes(begin, character_size(bytes, begin)))
    begin += character_size(bytes, begin);
  while (side != Side::kLeft && end > begin) {
    const std::size_t last = character_before(bytes, end);
    if (!goes(last, end - last)) break;
    end = last;
  }
  return text.part(begin, std::max(begin, end));
}

Text escaped(const Text& text) {
  Text out;
  for (const Run& run : text.runs()) {
    std::string bytes;
    for (const char c : text.view().substr(run.begin, run.end - run.begin)) {
      const auto* row = std::ranges::find(kHtml, c, &HtmlEscape::character);
      bytes += row != std::end(kHtml) ? row->text : std::string_view(&c, 1);
    }
    out.append(bytes, run.origin);
  }
  return out;
}

Text replaced(Heap& heap, const Text& text, const Text& old, const Text& with, std::int64_t most) {
  Text out;
  std::size_t done = 0;
  std::size_t at = 0;
  heap.step_over(text.size());
  for (std::size_t left = most_of(most); left > 0; --left) {
    const std::size_t found = at <= text.size() ? find_text(text.view(), old.view(), at) : std::string_view::npos;
    if (found == std::string_view::npos) break;
    heap.step_over(found - done + with.size());
    heap.expect(out.held_bytes() + with.held_bytes() + found - done);
    out.append(text, done, found);
    out.append(with);
    done = found + old.size();
    at = old.empty() ? (found < text.size() ? found + character_size(text.view(), found) : text.size() + 1) : done;
  }
  out.append(text, done, text.size());
  return out;
}

std::vector<Text> split_at(Heap& heap, const Text& text, const Text& separator, std::int64_t most) {
  std::vector<Text> parts;
  std::size_t done = 0;
  for (std::size_t left = most_of(most); left > 0; --left) {
    const std::size_t found = find_text(text.view(), separator.view(), done);
    if (found == std::string_view::npos) break;
    add_part(heap, parts, text.part(done, found));
    done = found + separator.size();
  }
  add_part(heap, parts, text.part(done, text.size()));
  return parts;
}

std::vector<Text> split_at_last(Heap& heap, const Text& text, const Text& separator, std::int64_t most) {
  std::vector<Text> parts;
  std::size_t end = text.size();
  for (std::size_t left = most_of(most); left > 0 && end >= separator.size(); --left) {
    std::size_t found = end - separator.size();
    const auto stands = [&] { return text.view().substr(found, separator.size()) == separator.view(); };
    while (!stands() && found > 0) {
      --found;
      heap.step_over(separator.size());
    }
    if (!stands()) break;
    add_part(heap, parts, text.part(found + separator.size(), end));
    end = found;
  }
  add_part(heap, parts, text.part(0, end));
  std::ranges::reverse(parts);
  return parts;
}

std::vector<Text> split_at_blanks(Heap& heap, const Text& text, std::int64_t most) {
  std::vector<Text> parts;
  const std::string_view bytes = text.view();
  std::size_t at = 0;
  const auto skip = [&](bool blanks) {
    while (at < bytes.size() && is_blank_at(bytes, at) == blanks) at += character_size(bytes, at);
  };
  heap.step_over(text.size());
  skip(true);
  for (std::size_t left = most_of(most); left > 0 && at < bytes.size(); --left) {
    const std::size_t begin = at;
    skip(false);
    add_part(heap, parts, text.part(begin, at));
    skip(true);
  }
  if (at < bytes.size()) add_part(heap, parts, text.part(at, text.size()));
  return parts;
}

std::vector<Text> split_at_last_blanks(Heap& heap, const Text& text, std::int64_t most) {
  std::vector<Text> parts;
  const std::string_view bytes = text.view();
  std::size_t end = text.size();
  const auto skip = [&](bool blanks) {
    while (end > 0 && is_blank_at(bytes, character_before(bytes, end)) == blanks) end = character_before(bytes, end);
  };
  heap.step_over(text.size());
  skip(true);
  for (std::size_t left = most_of(most); left > 0 && end > 0; --left) {
    const std::size_t last = end;
    skip(false);
    add_part(heap, parts, text.part(end, last));
    skip(true);
  }
  if (end > 0) add_part(heap, parts, text.part(0, end));
  std::ranges::reverse(parts);
  return parts;
}

std::vector<Text> split_lines(Heap& heap, const Text& text, bool keeps_ends) {
  std::vector<Text> parts;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = line_break_size(text.view(), at);
    at += size > 0 ? size : character_size(text.view(), at);
    if (size == 0) continue;
    add_part(heap, parts, text.part(begin, keeps_ends ? at : at - size));
    begin = at;
  }
  if (begin < text.size()) add_part(heap, parts, text.part(begin, text.size()));
  return parts;
}

}  // namespace halfbyte::models::jinja
