#include "models/tokenizers/huggingface/delimiter.h"

namespace halfbyte::models::huggingface {

void DelimiterCutter::emit(std::size_t begin, std::size_t end) {
  if (end > begin) sink_.take(piece_.part(begin, end));
}

void DelimiterCutter::delimiter(std::size_t begin, std::size_t end) {
  if (begin > done_) add(done_, begin, is_inverted_);
  add(begin, end, !is_inverted_);
  done_ = end;
}

void DelimiterCutter::finish() {
  if (done_ < piece_.text.size()) add(done_, piece_.text.size(), is_inverted_);
  if (held_) emit(held_->begin, held_->end);
  held_.reset();
}

// Joins `next` to what is held, or holds it instead.
void DelimiterCutter::hold(Stretch next, bool merges) {
  if (held_ && merges) {
    held_->end = next.end;
    held_->is_delimiter = next.is_delimiter;
    return;
  }
  if (held_) emit(held_->begin, held_->end);
  held_ = next;
}

void DelimiterCutter::add(std::size_t begin, std::size_t end, bool is_delimiter) {
  const bool follows_delimiter = last_is_delimiter_;
  last_is_delimiter_ = is_delimiter;
  switch (behavior_) {
    case DelimiterBehavior::kRemoved:
      if (!is_delimiter) emit(begin, end);
      return;
    case DelimiterBehavior::kIsolated:
      return emit(begin, end);
    case DelimiterBehavior::kContiguous:
      return hold({begin, end, is_delimiter}, is_delimiter == follows_delimiter);
    case DelimiterBehavior::kMergedWithPrevious:
      return hold({begin, end, is_delimiter}, is_delimiter && !follows_delimiter);
    case DelimiterBehavior::kMergedWithNext:
      return hold({begin, end, is_delimiter}, follows_delimiter && !is_delimiter);
  }
}

}  // namespace halfbyte::models::huggingface
