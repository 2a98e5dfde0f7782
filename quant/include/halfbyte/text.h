// One line for a person, in which the options and operations it names are marked.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <halfbyte/option.h>

namespace halfbyte {

// Pieces are joined with +: "exists already; " + Option::kOverwrite + " replaces it". What is marked is known by its
// place, so that no name from a file can pass for an option.
class Text {
 public:
  Text() = default;
  Text(std::string plain) : text_(std::move(plain)) {}  // NOLINT(google-explicit-constructor): a text without marks
  Text(const char* plain) : text_(plain) {}             // NOLINT(google-explicit-constructor)
  Text(Option option);                                  // NOLINT(google-explicit-constructor)
  Text(OperationCall call);                             // NOLINT(google-explicit-constructor)
  Text(Operation operation);                            // NOLINT(google-explicit-constructor)

  // As a C++ program has it (cpp_spelling).
  const std::string& str() const noexcept { return text_; }
  std::string str(const Spelling& spelling) const;
  bool empty() const noexcept { return text_.empty(); }

  Text& operator+=(const Text& more);

 private:
  struct Mark {
    std::size_t begin;  // in text_
    std::size_t end;
    std::variant<Option, OperationCall> what;
  };

  std::string text_;
  std::vector<Mark> marks_;  // in order, apart
};

Text operator+(Text text, const Text& more);
// Between literals and enumerators, neither of which is a class, the language looks for no conversions.
inline Text operator+(Text text, Option option) { return std::move(text) + Text(option); }
inline Text operator+(Option option, const Text& more) { return Text(option) + more; }
inline Text operator+(Text text, Operation operation) { return std::move(text) + Text(operation); }
inline Text operator+(Operation operation, const Text& more) { return Text(operation) + more; }

}  // namespace halfbyte
