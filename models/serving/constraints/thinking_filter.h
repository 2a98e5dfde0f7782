// Answers that think aloud first, and then have some form. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <memory>
#include <set>

#include "models/serving/constraints/schema_filter.h"

namespace halfbyte::serving {

// Any token but those that end an answer, until `close` comes, which must while there is room for the shortest answer
// behind it; then what `answer` allows.
class ThinkingFilter final : public TokenFilter {
 public:
  ThinkingFilter(std::int64_t close, std::int64_t vocab_size, const models::TokenIds& stop_tokens,
                 std::shared_ptr<SchemaFilter> answer)
      : close_(close),
        vocab_size_(vocab_size),
        stop_tokens_(stop_tokens.begin(), stop_tokens.end()),
        answer_(std::move(answer)) {}

  bool allows(std::int64_t token, std::int64_t room) const override;
  bool is_loose() const override { return thinks_ || answer_->is_loose(); }
  void allowed(std::int64_t room, std::vector<bool>& out) const override;
  void choose(std::int64_t token) override;
  bool may_end() const override { return !thinks_ && answer_->may_end(); }
  bool must_end() const override { return !thinks_ && answer_->must_end(); }

 private:
  bool must_close(std::int64_t room) const { return room <= answer_->rest() + 1; }

  std::int64_t close_, vocab_size_;
  std::set<std::int64_t> stop_tokens_;
  std::shared_ptr<SchemaFilter> answer_;
  bool thinks_ = true;
};

}  // namespace halfbyte::serving
