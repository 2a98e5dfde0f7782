#include "tools/server/api/answer_filter.h"

#include <utility>

#include "models/serving/constraints/thinking_filter.h"

namespace halfbyte::server {

bool begins_thinking(std::span<const models::Segment> segments) {
  const std::string_view end = segments.empty() ? std::string_view() : std::string_view(segments.back().text);
  return end.substr(0, end.find_last_not_of(" \n") + 1).ends_with("<think>");
}

std::optional<std::int64_t> thinking_end(const models::Tokenizer& tokenizer) {
  const auto id = tokenizer.id_of("</think>");
  return id && !tokenizer.is_special(*id) ? id : std::nullopt;
}

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
