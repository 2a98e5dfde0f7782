// A set of characters of a regular expression, on its way from Oniguruma's words to PCRE2's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::models::huggingface {

// A part of a set: what stands for it between brackets or, where brackets cannot say it, as an expression of its own.
struct SetItem {
  std::string in_brackets;
  std::string alone;
};

// A union of items, or an intersection of such unions; perhaps negated.
class CharSet {
 public:
  void negate() { is_negated_ = !is_negated_; }
  void add(SetItem item);
  void add(const CharSet& set);
  void intersect() { unions_.emplace_back(); }  // what is added from now on is the next operand
  SetItem item() const;
  std::string expression() const;  // matches one character

 private:
  struct Union {
    std::string in_brackets;
    std::vector<std::string> alone;
  };
  static std::string expression(const Union& all);
  std::vector<Union> unions_ = {{}};
  bool is_negated_ = false;
};

// \s \S \w \W \d \D \h \H, or nothing.
const SetItem* shorthand(char letter);
// \p{name} or, negated, \P{name} and \p{^name}.
SetItem property(std::string_view name, bool is_negated);
// [:name:] or [:^name:]; the name is without its colons.
SetItem posix_class(std::string_view name);
std::string word_boundary(bool is_negated);

}  // namespace halfbyte::models::huggingface
