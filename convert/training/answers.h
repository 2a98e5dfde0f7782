// A conversation as tokens, of which the model is to learn its answers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "convert/training/document.h"
#include "models/chat/chat_template.h"
#include "models/chat/conversation.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::convert {

struct AnswerReader {
  const models::Tokenizer& tokenizer;
  const models::ChatTemplate& chat;
  models::TokenIds stops;           // tokens that end an answer
  std::optional<std::int64_t> end;  // what ends the last one where the template has nothing that does
};

// The conversation as one document, in which each of the assistant's turns is scored: from where its template asks for
// it, to the token that ends it. Where the template writes turns otherwise once the conversation goes on (it drops
// earlier reasoning), one document for each answer, with what stood before it when it was given.
// Errors: kCorrupt for a conversation that begins with an answer, or an answer that its template does not write behind
// what asks for it; as ChatTemplate::render.
std::vector<Document> documents_of(const models::ChatInput& conversation, const AnswerReader& reader);

}  // namespace halfbyte::convert
