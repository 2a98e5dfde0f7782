#include "models/chat/encode.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "models/chat/trim.h"

namespace halfbyte::models {
namespace {

struct Control {
  std::size_t begin;
  std::size_t end;
  std::int64_t id;
};

TokenIds ids_of(const std::vector<TokenSpan>& spans) {
  TokenIds ids;
  for (const TokenSpan& span : spans) ids.push_back(span.id);
  return ids;
}

// A tokenizer may let a special token take the blanks beside it.
bool covers(const TokenSpan& span, const Control& control, std::string_view text) {
  if (span.id != control.id || span.begin > control.begin || span.end < control.end) return false;
  const auto before = text.substr(span.begin, control.begin - span.begin);
  const auto after = text.substr(control.end, span.end - control.end);
  return trimmed(before).empty() && trimmed(after).empty();
}

bool have_all(const std::vector<TokenSpan>& spans, const std::vector<Control>& controls, std::string_view text) {
  auto next = controls.begin();
  for (const TokenSpan& span : spans) {
    if (next != controls.end() && covers(span, *next, text)) ++next;
  }
  return next == controls.end();
}

bool spells_no_special(const Segment& segment, const Tokenizer& tokenizer) {
  return segment.is_control || tokenizer.encode(segment.text, SpecialTokens::kAsText) ==
                                   tokenizer.encode(segment.text, SpecialTokens::kParse);
}

// Each text by itself.
std::vector<TokenSpan> encode_apart(const std::vector<Segment>& segments, const Tokenizer& tokenizer) {
  std::vector<TokenSpan> out;
  std::size_t begin = 0;
  for (const Segment& segment : segments) {
    const auto own = segment.is_control
                         ? std::vector<TokenSpan>{{*tokenizer.id_of(segment.text), 0, segment.text.size()}}
                         : tokenizer.encode_spans(segment.text, SpecialTokens::kAsText);
    for (const TokenSpan& span : own) out.push_back({span.id, begin + span.begin, begin + span.end});
    begin += segment.text.size();
  }
  return out;
}

// The special tokens of a template's own text, without the blanks that they may take along.
std::vector<Control> controls_in(std::string_view text, const Tokenizer& tokenizer) {
  std::vector<Control> controls;
  for (const TokenSpan& span : tokenizer.encode_spans(text, SpecialTokens::kParse)) {
    if (!tokenizer.is_special(span.id)) continue;
    const std::string spelling = tokenizer.piece(span.id);
    const std::size_t at = text.substr(span.begin, span.end - span.begin).find(spelling);
    if (at == std::string_view::npos || spelling.empty()) continue;
    controls.push_back({span.begin + at, span.begin + at + spelling.size(), span.id});
  }
  return controls;
}

// Special tokens that the tokenizer lacks are text, as everybody's tokenizers have it.
std::vector<Segment> known(std::vector<Segment> segments, const Tokenizer& tokenizer) {
  std::vector<Segment> out;
  for (Segment& segment : segments) {
    if (segment.is_control) segment.is_control = tokenizer.id_of(segment.text).has_value();
    if (!segment.is_control && !out.empty() && !out.back().is_control) {
      out.back().text += segment.text;
    } else {
      out.push_back(std::move(segment));
    }
  }
  return out;
}

}  // namespace

std::vector<Segment> segments_of(const jinja::Text& text, const Tokenizer& tokenizer) {
  std::vector<Segment> out;
  const auto add = [&](std::string_view piece) {
    if (piece.empty()) return;
    if (out.empty() || out.back().is_control) out.push_back({});
    out.back().text += piece;
  };
  for (const jinja::Run& run : text.runs()) {
    const std::string_view piece = text.view().substr(run.begin, run.end - run.begin);
    std::size_t done = 0;
    for (const Control& control :
         run.origin == jinja::Origin::kTemplate ? controls_in(piece, tokenizer) : std::vector<Control>()) {
      add(piece.substr(done, control.begin - done));
      out.push_back({std::string(piece.substr(control.begin, control.end - control.begin)), true});
      done = control.end;
    }
    add(piece.substr(done));
  }
  return out;
}

// Encoded as one text wherever that cannot be misread: what a tokenizer does beside a special token (SentencePiece's
// dummy prefix, blanks that a token takes) is then as for everybody.
std::vector<TokenSpan> encode_segment_spans(std::vector<Segment> rendered, const Tokenizer& tokenizer) {
  const std::vector<Segment> segments = known(std::move(rendered), tokenizer);
  std::string text;
  std::vector<Control> controls;
  for (const Segment& segment : segments) {
    if (segment.is_control)
      controls.push_back({text.size(), text.size() + segment.text.size(), *tokenizer.id_of(segment.text)});
    text += segment.text;
  }
  if (std::ranges::all_of(segments, [&](const Segment& s) { return spells_no_special(s, tokenizer); })) {
    auto spans = tokenizer.encode_spans(text, SpecialTokens::kParse);
    if (have_all(spans, controls, text)) return spans;
  }
  return encode_apart(segments, tokenizer);
}

TokenIds encode_segments(std::vector<Segment> rendered, const Tokenizer& tokenizer) {
  return ids_of(encode_segment_spans(std::move(rendered), tokenizer));
}

}  // namespace halfbyte::models
