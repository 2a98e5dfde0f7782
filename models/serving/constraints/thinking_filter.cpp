#include "models/serving/constraints/thinking_filter.h"

namespace halfbyte::serving {

bool ThinkingFilter::allows(std::int64_t token, std::int64_t room) const {
  if (!thinks_) return answer_->allows(token, room);
  return token == close_ || (!must_close(room) && !stop_tokens_.contains(token));
}

void ThinkingFilter::allowed(std::int64_t room, std::vector<bool>& out) const {
  if (!thinks_) return answer_->allowed(room, out);
  out.assign(static_cast<std::size_t>(vocab_size_), !must_close(room));
  for (const std::int64_t token : stop_tokens_) {
    if (token < vocab_size_) out[static_cast<std::size_t>(token)] = false;
  }
  out[static_cast<std::size_t>(close_)] = true;
}

void ThinkingFilter::choose(std::int64_t token) {
  if (!thinks_) return answer_->choose(token);
  thinks_ = token != close_;
}

}  // namespace halfbyte::serving
