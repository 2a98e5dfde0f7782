// What becomes of the delimiters when a text is cut at them.
#pragma once

#include <cstddef>
#include <optional>

#include "models/tokenizers/huggingface/piece.h"

namespace halfbyte::models::huggingface {

enum class DelimiterBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Is told, from left to right, which stretches of a piece are delimiters; hands on the parts that result.
class DelimiterCutter {
 public:
  DelimiterCutter(const Piece& piece, DelimiterBehavior behavior, bool inverted, PieceSink& sink)
      : piece_(piece), behavior_(behavior), is_inverted_(inverted), sink_(sink) {}
  void delimiter(std::size_t begin, std::size_t end);  // what lies between the last one and this one is text
  void finish();

 private:
  struct Stretch {
    std::size_t begin;
    std::size_t end;
    bool is_delimiter;
  };
  void add(std::size_t begin, std::size_t end, bool is_delimiter);
  void hold(Stretch next, bool merges);
  void emit(std::size_t begin, std::size_t end);

  const Piece& piece_;
  DelimiterBehavior behavior_;
  bool is_inverted_;
  PieceSink& sink_;
  std::size_t done_ = 0;
  std::optional<Stretch> held_;
  bool last_is_delimiter_ = false;
};

}  // namespace halfbyte::models::huggingface
