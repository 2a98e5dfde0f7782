// What lets an answer have nothing but a schema's form.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "models/serving/constraints/schema.h"
#include "models/serving/constraints/token_trie.h"
#include "models/serving/token_filter.h"
#include "tools/server/http_server.h"

namespace halfbyte::server {

// One filter for each answer. `close`: the token that ends what is thought first; nothing: nothing is.
std::function<std::shared_ptr<serving::TokenFilter>()> answer_filter(const ServedModel& served,
                                                                     std::shared_ptr<const serving::TokenTrie> tokens,
                                                                     std::shared_ptr<const serving::Schema> schema,
                                                                     std::optional<std::int64_t> close);

}  // namespace halfbyte::server
