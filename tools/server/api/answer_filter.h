// What lets an answer have nothing but a schema's form.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "models/serving/constraints/schema.h"
#include "models/serving/constraints/token_trie.h"
#include "models/serving/token_filter.h"
#include "tools/server/http_server.h"

namespace halfbyte::server {

// Whether a rendered conversation ends within a thinking part.
bool begins_thinking(std::span<const models::Segment> segments);

// The token that ends a thinking part, of tokenizers whose texts have it. Nothing: there is none.
std::optional<std::int64_t> thinking_end(const models::Tokenizer& tokenizer);

// One filter for each answer. `close`: the token that ends what is thought first; nothing: nothing is.
std::function<std::shared_ptr<serving::TokenFilter>()> answer_filter(const ServedModel& served,
                                                                     std::shared_ptr<const serving::TokenTrie> tokens,
                                                                     std::shared_ptr<const serving::Schema> schema,
                                                                     std::optional<std::int64_t> close);

}  // namespace halfbyte::server
