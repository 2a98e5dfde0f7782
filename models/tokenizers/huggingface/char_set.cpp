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
  std::string_view difference;
};

constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

// Properties and POSIX classes that are unions, and what class_difference calls them.
constexpr Class kClasses[] = {
    {"alpha", "\\p{Alphabetic}", "alpha"},
    {"alphabetic", "\\p{Alphabetic}", "alpha"},
    {"digit", "\\p{Nd}", "Nd"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}", "alnum"},
    {"upper", "\\p{Uppercase}", "upper"},
    {"uppercase", "\\p{Uppercase}", "upper"},
    {"lower", "\\p{Lowercase}", "lower"},
    {"lowercase", "\\p{Lowercase}", "lower"},
    {"space", HALFBYTE_WHITE_SPACE, "space"},
    {"whitespace", HALFBYTE_WHITE_SPACE, "space"},
    {"blank", "\\p{Zs}\\x{9}", "blank"},
    {"cntrl", "\\p{Cc}", "Cc"},
    {"xdigit", "0-9A-Fa-f", "xdigit"},
    {"ascii", "\\x{0}-\\x{7f}", "ascii"},
    {"any", "\\x{0}-\\x{10ffff}", "any"},
    {"word", kWord, "word"},
    {"punct", "\\p{P}", "P"},
};

constexpr std::string_view kBinaryProperties[] = {"math",
                                                  "hexdigit",
                                                  "asciihexdigit",
                                                  "ideographic",
                                                  "emoji",
                                                  "emojipresentation",
                                                  "emojimodifier",
                                                  "emojimodifierbase",
                                                  "emojicomponent",
                                                  "extendedpictographic",
                                                  "dash",
                                                  "extender",
                                                  "quotationmark",
                                                  "variationselector",
                                                  "defaultignorablecodepoint",
                                                  "cased"};

struct Shorthand {
  char letter;
  std::string_view name;
};
constexpr Shorthand kShorthands[] = {{'s', "space"}, {'w', "word"}, {'d', "digit"}, {'h', "xdigit"}};

std::string folded(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (c != ' ' && c != '_' && c != '-')
      letters.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  return letters;
}

SetItem item_of(std::string_view in_brackets, std::string_view name, bool is_negated) {
  const ClassDifference difference = class_difference(name);
  const std::string set = std::string(in_brackets) + std::string(difference.added);
  std::string removed = "[";
  removed.append(difference.removed).append("]");
  if (difference.removed.empty()) return is_negated ? SetItem{{}, "[^" + set + "]"} : SetItem{set, {}};
  return {{}, is_negated ? "(?:" + removed + "|[^" + set + "])" : "(?:(?!" + removed + ")[" + set + "])"};
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
  return name.size() == 1 || std::islower(static_cast<unsigned char>(name[1]));
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
    for (const Shorthand& row : kShorthands) {
      const Class* named = find_row(kClasses, row.name);
      all.emplace_back(row.letter, item_of(named->in_brackets, named->difference, false));
      all.emplace_back(static_cast<char>(row.letter - 'a' + 'A'), item_of(named->in_brackets, named->difference, true));
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
  if (!category.empty()) return item_of("\\p{" + category + "}", category, is_negated);
  if (letters == "assigned") return property("Cn", !is_negated);
  if (const Class* row = find_row(kClasses, letters)) return item_of(row->in_brackets, row->difference, is_negated);
  const bool is_binary =
      std::find(std::begin(kBinaryProperties), std::end(kBinaryProperties), letters) != std::end(kBinaryProperties);
  return item_of((is_binary ? "\\p{" : "\\p{sc:") + std::string(name) + "}", letters, is_negated);
}

SetItem posix_class(std::string_view name) {
  const bool is_negated = name.starts_with('^');
  const std::string_view plain = is_negated ? name.substr(1) : name;
  if (plain == "word") return item_of(kWord, "posixword", is_negated);
  if (plain != "punct") return property(name, false);
  CharSet set;
  set.add(property("P", false));
  set.add(property("S", false));
  if (is_negated) set.negate();
  return set.item();
}

std::string word_boundary(bool is_negated) {
  const std::string word = "[" + shorthand('w')->in_brackets + "]";
  if (is_negated) return "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))";
  return "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
}

}  // namespace halfbyte::models::huggingface
