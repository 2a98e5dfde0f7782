#include "models/chat/answer_stream.h"

#include <algorithm>

namespace halfbyte::models {

std::string AnswerStream::without_beginning(std::string text) {
  if (!drops_blanks_) return text;
  text.erase(0, std::min(text.find_first_not_of(" \n"), text.size()));
  drops_blanks_ = text.empty();
  return text;
}

}  // namespace halfbyte::models
