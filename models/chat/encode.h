// Rendered conversations as token ids.
#pragma once

#include <vector>

#include "models/chat/conversation.h"
#include "models/chat/jinja/text.h"
#include "models/tokenizers/tokenizer.h"

namespace halfbyte::models {

// What the template itself wrote is searched for the tokenizer's special tokens; all else is text.
std::vector<Segment> segments_of(const jinja::Text& text, const Tokenizer& tokenizer);

// Special tokens stand where segments say so, and nowhere else.
TokenIds encode_segments(std::vector<Segment> segments, const Tokenizer& tokenizer);
// The same with the bytes of the segments' texts, one after another, that each token stands for.
std::vector<TokenSpan> encode_segment_spans(std::vector<Segment> segments, const Tokenizer& tokenizer);

}  // namespace halfbyte::models
