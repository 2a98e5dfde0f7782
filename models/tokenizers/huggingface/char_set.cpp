#include "models/tokenizers/huggingface/char_set.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "models/tokenizers/huggingface/regex_differences.h"

namespace halfbyte::models::huggingface {
namespace {

#define HALFBYTE_WHITE_SPACE \
  "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

struct Name {
  std::string_view known;
  std::string_view pcre2;
};

// What Oniguruma calls properties that PCRE2 knows by another name; without case, spaces, _ and -.
constexpr Name kNames[] = {{"letter", "L"},
                           {"casedletter", "L&"},
                           {"lc", "L&"},
                           {"uppercaseletter", "Lu"},
                           {"lowercaseletter", "Ll"},
                           {"titlecaseletter", "Lt"},
                           {"modifierletter", "Lm"},
                           {"otherletter", "Lo"},
                           {"mark", "M"},
                           {"combiningmark", "M"},
                           {"nonspacingmark", "Mn"},
                           {"spacingmark", "Mc"},
                           {"enclosingmark", "Me"},
                           {"number", "N"},
                           {"decimalnumber", "Nd"},
                           {"letternumber", "Nl"},
                           {"othernumber", "No"},
                           {"punctuation", "P"},
                           {"connectorpunctuation", "Pc"},
                           {"dashpunctuation", "Pd"},
                           {"openpunctuation", "Ps"},
                           {"closepunctuation", "Pe"},
                           {"initialpunctuation", "Pi"},
                           {"finalpunctuation", "Pf"},
                           {"otherpunctuation", "Po"},
                           {"symbol", "S"},
                           {"mathsymbol", "Sm"},
                           {"currencysymbol", "Sc"},
                           {"modifiersymbol", "Sk"},
                           {"othersymbol", "So"},
                           {"separator", "Z"},
                           {"spaceseparator", "Zs"},
                           {"lineseparator", "Zl"},
                           {"paragraphseparator", "Zp"},
                           {"other", "C"},
                           {"control", "Cc"},
                           {"format", "Cf"},
                           {"surrogate", "Cs"},
                           {"privateuse", "Co"},
                           {"unassigned", "Cn"}};

struct Class {
  std::string_view name;
  std::string_view in_brackets;
};

// Properties and POSIX classes that are unions.
constexpr Class kClasses[] = {
    {"alpha", "\\p{Alphabetic}"},
    {"digit", "\\p{Nd}"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"upper", "\\p{Uppercase}"},
    {"lower", "\\p{Lowercase}"},
    {"space", HALFBYTE_WHITE_SPACE},
    {"whitespace", HALFBYTE_WHITE_SPACE},
    {"blank", "\\p{Zs}\\x{9}"},
    {"cntrl", "\\p{Cc}"},
    {"xdigit", "0-9A-Fa-f"},
    {"ascii", "\\x{0}-\\x{7f}"},
    {"any", "\\x{0}-\\x{10ffff}"},
    {"word", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"},
    {"punct", "\\p{P}$+<=>^`|~"},
};

constexpr Class kShorthands[] = {
    {"s", HALFBYTE_WHITE_SPACE}, {"w", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"}, {"d", "\\p{Nd}"}, {"h", "0-9A-Fa-f"}};

std::string folded(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (c != ' ' && c != '_' && c != '-')
      letters.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  return letters;
}

SetItem item_of(std::string in_brackets, bool is_negated) {
  if (is_negated) return {{}, "[^" + in_brackets + "]"};
  return {std::move(in_brackets), {}};
}

template <class Rows>
const auto* find_row(const Rows& rows, std::string_view name) {
  const auto found =
      std::find_if(std::begin(rows), std::end(rows), [name](const Class& row) { return row.name == name; });
  return found == std::end(rows) ? nullptr : &*found;
}

bool is_general_category(std::string_view name) {
  if (name.empty() || name.size() > 2 || std::string_view("LMNPSZC").find(name[0]) == std::string_view::npos)
    return false;
  return name.size() == 1 || name == "L&" || std::islower(static_cast<unsigned char>(name[1]));
}

// A general category's short name in its usual case, or nothing.
std::string general_category(std::string_view name) {
  const std::string letters = folded(name);
  for (const Name& row : kNames)
    if (row.known == letters) return std::string(row.pcre2);
  if (letters.empty() || letters.size() > 2) return {};
  std::string category = letters;
  category[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(category[0])));
  return is_general_category(category) ? category : std::string();
}

}  // namespace

void CharSet::add(SetItem item) {
  unions_.back().in_brackets += item.in_brackets;
  if (!item.alone.empty()) unions_.back().alone.push_back(std::move(item.alone));
}

void CharSet::add(const CharSet& set) { add(set.item()); }

std::string CharSet::expression(const Union& all) {
  std::string text = all.in_brackets.empty() ? "" : "[" + all.in_brackets + "]";
  if (all.alone.empty()) return text.empty() ? "(?!)" : text;
  for (const std::string& alone : all.alone) text += (text.empty() ? "" : "|") + alone;
  return "(?:" + text + ")";
}

std::string CharSet::expression() const {
  const bool is_plain = unions_.size() == 1 && unions_[0].alone.empty() && !unions_[0].in_brackets.empty();
  if (is_plain) return (is_negated_ ? "[^" : "[") + unions_[0].in_brackets + "]";
  std::string text;
  for (std::size_t i = 0; i + 1 < unions_.size(); ++i) text += "(?=" + expression(unions_[i]) + ")";
  text += expression(unions_.back());
  return is_negated_ ? "(?:(?!" + text + ")(?s:.))" : "(?:" + text + ")";
}

SetItem CharSet::item() const {
  const bool is_plain = unions_.size() == 1 && unions_[0].alone.empty() && !is_negated_;
  return is_plain ? SetItem{unions_[0].in_brackets, {}} : SetItem{{}, expression()};
}

const SetItem* shorthand(char letter) {
  static const auto items = [] {
    std::vector<std::pair<char, SetItem>> all;
    for (const Class& row : kShorthands) {
      const std::string text = std::string(row.in_brackets) + std::string(newer_in_class(row.name));
      all.emplace_back(row.name[0], item_of(text, false));
      all.emplace_back(static_cast<char>(row.name[0] - 'a' + 'A'), item_of(text, true));
    }
    return all;
  }();
  for (const auto& [name, item] : items)
    if (name == letter) return &item;
  return nullptr;
}

SetItem property(std::string_view name, bool is_negated) {
  if (name.starts_with('^')) return property(name.substr(1), !is_negated);
  const std::string letters = folded(name);
  const std::string category = general_category(name);
  if (!category.empty()) return item_of("\\p{" + category + "}" + std::string(newer_in_class(category)), is_negated);
  if (const Class* row = find_row(kClasses, letters))
    return item_of(std::string(row->in_brackets) + std::string(newer_in_class(row->name)), is_negated);
  const bool is_binary =
      std::find(std::begin(kBinaryProperties), std::end(kBinaryProperties), letters) != std::end(kBinaryProperties);
  const bool is_assigned = letters == "assigned";
  if (is_assigned) return property("Cn", !is_negated);
  return item_of((is_binary ? "\\p{" : "\\p{sc:") + std::string(name) + "}", is_negated);
}

SetItem posix_class(std::string_view name) { return property(name, false); }

std::string word_boundary(bool is_negated) {
  const std::string word = "[" + shorthand('w')->in_brackets + "]";
  if (is_negated) return "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))";
  return "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
}

}  // namespace halfbyte::models::huggingface
