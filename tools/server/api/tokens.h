// POST /tokenize and /detokenize.
#pragma once

#include "tools/server/http_server.h"

#include "tools/server/api/body.h"

namespace halfbyte::server {

// {"text" or "content" or "prompt", "add_special", "with_pieces"} -> {"tokens", "count", "max_model_len"}.
Json tokens_of_text(const Body& body, const ServedModel& model);
// {"tokens"} -> {"text", "content"}.
Json text_of_tokens(const Body& body, const ServedModel& model);

}  // namespace halfbyte::server
