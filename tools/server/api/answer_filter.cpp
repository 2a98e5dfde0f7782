#include "tools/server/api/answer_filter.h"

#include <utility>

#include "models/serving/constraints/thinking_filter.h"

namespace halfbyte::server {

std::function<std::shared_ptr<serving::TokenFilter>()> answer_filter(const ServedModel& served,
                                                                     std::shared_ptr<const serving::TokenTrie> tokens,
                                                                     std::shared_ptr<const serving::Schema> schema,
                                                                     std::optional<std::int64_t> close) {
  models::TokenIds stops = served.stop_tokens;
  stops.insert(stops.end(), served.chat_stop_tokens.begin(), served.chat_stop_tokens.end());
  return [schema = std::move(schema), close, tokens = std::move(tokens),
          stops = std::move(stops)]() -> std::shared_ptr<serving::TokenFilter> {
    auto answer = std::make_shared<serving::SchemaFilter>(schema, tokens, stops);
    if (!close) return answer;
    return std::make_shared<serving::ThinkingFilter>(*close, tokens->vocab_size(), stops, std::move(answer));
  };
}

}  // namespace halfbyte::server
