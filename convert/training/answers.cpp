#include "convert/training/answers.h"

#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/chat/encode.h"
#include "models/chat/trim.h"

namespace halfbyte::convert {
namespace {

using models::ChatInput;
using models::Segment;
using models::TokenSpan;
using Json = nlohmann::ordered_json;

// Each answer needs the conversation up to it: so many messages take some ten seconds.
constexpr std::size_t kMostMessages = 2048;

[[noreturn]] void fail(const std::string& problem) { throw Error(ErrorCode::kCorrupt, problem); }

struct Rendering {
  std::vector<Segment> segments;
  std::string text;  // of all of them
};

Rendering rendered(ChatInput& input, const AnswerReader& reader, bool asks_for_answer) {
  input.asks_for_answer = asks_for_answer;
  Rendering out{reader.chat.render(input, reader.tokenizer), {}};
  for (const Segment& segment : out.segments) out.text += segment.text;
  return out;
}

bool is_answer(const Json& message) { return message["role"] == "assistant"; }

// Bytes of a rendering: [begin, end).
struct Answer {
  std::size_t begin, end;
};

std::string_view text_of(const Json& message) {
  const auto found = message.find("content");
  if (found == message.end() || !found->is_string()) return {};
  return models::trimmed(std::string_view(found->get_ref<const std::string&>()));
}

// Where in `with` an answer begins, by the question's text and what asks for the answer behind it, which end `before`.
// Nothing: they stand nowhere in front of the answer's text.
std::optional<std::size_t> begin_of(const Json& question, const Json& answer, const std::string& before,
                                    const std::string& with) {
  const std::string_view asked = text_of(question);
  const std::size_t at = asked.empty() ? std::string::npos : before.rfind(asked);
  const std::size_t last = with.rfind(text_of(answer));
  if (at == std::string::npos || last == std::string::npos) return std::nullopt;
  const std::string_view asking = std::string_view(before).substr(at);
  const std::size_t found = last < asking.size() ? std::string::npos : with.rfind(asking, last - asking.size());
  if (found == std::string::npos) return std::nullopt;
  return found + asking.size();
}

// `with` from `begin` on, behind `before`.
Rendering joined(Rendering before, const Rendering& with, std::size_t begin) {
  std::size_t at = 0;
  for (const Segment& segment : with.segments) {
    const std::size_t skipped = std::min(begin - std::min(begin, at), segment.text.size());
    at += segment.text.size();
    if (skipped < segment.text.size()) before.segments.push_back({segment.text.substr(skipped), segment.is_control});
  }
  before.text += with.text.substr(begin);
  return before;
}

// A conversation up to an answer and with it. Where its template writes what comes before otherwise once the answer is
// there (Mistral's leave a system text out then), as the model saw it when it was asked.
Rendering answered(ChatInput& part, const Json& answer, Rendering before, const AnswerReader& reader) {
  const Json question = part.messages->back();
  part.messages->push_back(answer);
  Rendering with = rendered(part, reader, false);
  if (with.text.starts_with(before.text)) return with;
  const auto begin = begin_of(question, answer, before.text, with.text);
  if (!begin)
    fail("the chat template does not write message " + std::to_string(part.messages->size()) +
         " behind what asks for an answer (does the model think first?); give \"prompt\" and \"completion\", or token "
         "ids");
  return joined(std::move(before), with, *begin);
}

// Calls take(rendering up to an answer and with it, where the answer stands in it) for each.
template <class Take>
void each_answer(const ChatInput& conversation, const AnswerReader& reader, const Take& take) {
  ChatInput part = conversation;
  *part.messages = Json::array();
  for (const Json& message : *conversation.messages) {
    if (!is_answer(message)) {
      part.messages->push_back(message);
      continue;
    }
    if (part.messages->empty()) fail("an answer stands first, which nothing asks for");
    Rendering before = rendered(part, reader, true);
    const std::size_t begin = before.text.size();
    Rendering with = answered(part, message, std::move(before), reader);
    const Answer answer{begin, with.text.size()};
    take(std::move(with), answer);
  }
}

// A tokenizer may make one token of an answer's beginning and what stands before it.
bool is_of(const TokenSpan& span, const Answer& answer, const models::Tokenizer& tokenizer) {
  if (span.begin >= answer.end) return false;
  return span.begin >= answer.begin || (span.end > answer.begin && !tokenizer.is_special(span.id));
}

class Scorer {
 public:
  Scorer(std::vector<TokenSpan> spans, const AnswerReader& reader)
      : spans_(std::move(spans)), is_scored_(spans_.size()), reader_(reader) {}

  // Blanks behind an answer are the template's, and nobody waits for them.
  void score(const Answer& answer) {
    const auto is_in = [&](const TokenSpan& span) { return is_of(span, answer, reader_.tokenizer); };
    const auto first = std::ranges::find_if(spans_, is_in) - spans_.begin();
    auto last = std::find_if_not(spans_.begin() + first, spans_.end(), is_in) - spans_.begin();
    const auto whole = last;
    while (last > first && is_blank(at(last - 1))) --last;
    const bool is_ended = last > first && (is_stop(at(last - 1)) || reader_.tokenizer.is_special(at(last - 1)));
    // Some models' answers end with the token that begins the next turn.
    if (!is_ended && last == whole && whole < std::ssize(spans_) && is_stop(at(whole))) ++last;
    std::fill(is_scored_.begin() + first, is_scored_.begin() + last, true);
    if (is_ended || whole < std::ssize(spans_)) return;
    needs_end_ = reader_.end.has_value();
    spans_.resize(static_cast<std::size_t>(last));
  }

  Document take() const {
    Document out{.prefix = reader_.tokenizer.prefix()};
    for (std::size_t i = 0; i < spans_.size(); ++i) out.add(spans_[i].id, is_scored_[i]);
    if (needs_end_) out.add(*reader_.end, true);
    return out;
  }

 private:
  std::int64_t at(std::ptrdiff_t index) const { return spans_[static_cast<std::size_t>(index)].id; }
  bool is_stop(std::int64_t id) const { return std::ranges::find(reader_.stops, id) != reader_.stops.end(); }
  bool is_blank(std::int64_t id) const {
    return !is_stop(id) && !reader_.tokenizer.is_special(id) &&
           models::trimmed(reader_.tokenizer.decode({id}, false)).empty();
  }

  std::vector<TokenSpan> spans_;
  std::vector<bool> is_scored_;
  const AnswerReader& reader_;
  bool needs_end_ = false;
};

Document scored(Rendering rendering, const std::vector<Answer>& answers, const AnswerReader& reader) {
  Scorer scorer(models::encode_segment_spans(std::move(rendering.segments), reader.tokenizer), reader);
  for (const Answer& answer : answers) scorer.score(answer);
  return scorer.take();
}

}  // namespace

std::vector<Document> documents_of(const ChatInput& conversation, const AnswerReader& reader) {
  if (conversation.messages->size() > kMostMessages)
    fail("a conversation of more than " + std::to_string(kMostMessages) + " messages");
  ChatInput all = conversation;
  Rendering whole = rendered(all, reader, false);
  std::vector<Answer> answers;
  bool goes_on_alike = true;
  each_answer(conversation, reader, [&](const Rendering& with, const Answer& answer) {
    answers.push_back(answer);
    goes_on_alike = goes_on_alike && whole.text.starts_with(with.text);
  });
  std::vector<Document> out;
  if (goes_on_alike) {
    out.push_back(scored(std::move(whole), answers, reader));
  } else {
    each_answer(conversation, reader, [&](Rendering with, const Answer& answer) {
      out.push_back(scored(std::move(with), {answer}, reader));
    });
  }
  return out;
}

}  // namespace halfbyte::convert
