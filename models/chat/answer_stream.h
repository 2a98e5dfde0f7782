// A model's answer as text, while its tokens come.
#pragma once

#include <cstdint>
#include <string>

#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models {

// What a template puts in front of answers is left out.
class AnswerStream {
 public:
  AnswerStream(const Tokenizer& tokenizer, bool begins_with_line)
      : decoder_(tokenizer), drops_blanks_(begins_with_line) {}
  std::string push(std::int64_t token) { return without_beginning(decoder_.push(token)); }
  std::string finish() { return without_beginning(decoder_.finish()); }

 private:
  std::string without_beginning(std::string text);
  StreamingDecoder decoder_;
  bool drops_blanks_;
};

}  // namespace halfbyte::models
