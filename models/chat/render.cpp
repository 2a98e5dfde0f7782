// Messages to segments, by a family's row.
#include <algorithm>
#include <string_view>

#include "models/chat/family_template.h"
#include "models/chat/trim.h"

namespace halfbyte::models {
namespace {

// Of a template's own strings: where the next special token or placeholder stands.
struct Found {
  std::size_t at = std::string_view::npos;
  std::string_view word;
};

class Renderer {
 public:
  explicit Renderer(const FamilyTemplate& with) : with_(with) {}

  // The template's own string.
  void own(std::string_view text) {
    while (!text.empty()) {
      const Found found = next_word(text);
      plain(text.substr(0, found.at));
      if (found.at == std::string_view::npos) return;
      put(found.word);
      text.remove_prefix(found.at + found.word.size());
    }
  }

  // Somebody's text, whatever it spells.
  void plain(std::string_view text) {
    if (text.empty()) return;
    if (segments_.empty() || segments_.back().is_control) segments_.push_back({});
    segments_.back().text += text;
  }

  void begin_round() { ++round_; }
  std::vector<Segment> take() { return std::move(segments_); }

 private:
  Found next_word(std::string_view text) const {
    Found first;
    const auto look_for = [&](std::string_view word) {
      const std::size_t at = text.find(word);
      if (at < first.at || (at == first.at && word.size() > first.word.size())) first = {at, word};
    };
    for (const std::string_view word : with_.family->controls) {
      if (!word.empty()) look_for(word);
    }
    for (const std::string_view word : {"{bos}", "{eos}", "{date}", "{round}"}) look_for(word);
    return first;
  }

  void put(std::string_view word) {
    if (word == "{bos}") return control(with_.bos);
    if (word == "{eos}") return control(with_.eos);
    if (word == "{date}") return plain(with_.date);
    if (word == "{round}") return plain(std::to_string(round_));
    control(word);
  }

  void control(std::string_view spelling) {
    if (!spelling.empty()) segments_.push_back({std::string(spelling), true});
  }

  const FamilyTemplate& with_;
  std::vector<Segment> segments_;
  int round_ = 0;
};

// Source: Qwen3's chat_template.
std::string_view without_thinking(std::string_view text) {
  constexpr std::string_view kEnd = "</think>";
  const std::size_t at = text.rfind(kEnd);
  if (at == std::string_view::npos) return text;
  text.remove_prefix(at + kEnd.size());
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

std::string_view answer_of(const FamilyTemplate& with, const Message& message) {
  return with.family->drops_thinking ? without_thinking(message.text) : std::string_view(message.text);
}

// `system`: what stands in front of this user's text.
void add_user(Renderer& out, const FamilyTemplate& with, const std::string& text,
              const std::optional<std::string>& system) {
  out.begin_round();
  out.own(with.user.before);
  const Turn& around = with.family->system;
  if (system && !around.before.empty()) {  // Llama 2 trims both together
    const std::string both = std::string(around.before) + *system + std::string(around.after) + text;
    out.plain(with.user.is_trimmed ? trimmed(both) : both);
  } else {
    if (system) out.plain(*system + std::string(around.after));
    out.plain(with.user.is_trimmed ? trimmed(text) : std::string_view(text));
  }
  out.own(with.user.after);
}

void add_turn(Renderer& out, const Turn& turn, std::string_view text) {
  out.own(turn.before);
  out.plain(turn.is_trimmed ? trimmed(text) : text);
  out.own(turn.after);
}

void add_call(Renderer& out, const ToolTurns& turns, const Message& call) {
  out.own(turns.before_name);
  out.plain(call.called);
  out.own(turns.before_arguments);
  out.plain(call.text);
  out.own(turns.behind_arguments);
}

}  // namespace

FamilyTemplate::FamilyTemplate(const ChatFamily& row)
    : family(&row),
      bos(row.bos),
      eos(row.eos),
      date("26 Jul 2024"),  // what Llama 3.1's template has where nobody says another
      start(row.start),
      answer(row.answer),
      user(row.user),
      assistant(row.assistant),
      system_place(row.system_place),
      default_system(row.default_system) {}

std::vector<Segment> FamilyTemplate::render(const Conversation& conversation, bool asks_for_answer) const {
  std::optional<std::string> system = default_system;
  std::span<const Message> turns = conversation;
  if (!turns.empty() && turns.front().role == Speaker::kSystem) {
    system = turns.front().text;
    turns = turns.subspan(1);
  }
  Renderer out(*this);
  out.own(start);
  if (system && system_place == SystemPlace::kTurn && !(skips_empty_system && system->empty()))
    add_turn(out, family->system, *system);
  const bool is_first = system_place == SystemPlace::kFirstUser;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (skips_empty && turns[i].text.empty()) continue;
    const bool has_system = system_place != SystemPlace::kTurn && i == (is_first ? 0 : turns.size() - 1);
    if (turns[i].role == Speaker::kUser) {
      add_user(out, *this, turns[i].text, has_system ? system : std::nullopt);
    } else if (turns[i].role == Speaker::kTool && family->tools) {
      add_turn(out, family->tools->result, turns[i].text);
    } else if (!turns[i].called.empty() && family->tools) {
      add_call(out, *family->tools, turns[i]);
    } else {
      add_turn(out, assistant, answer_of(*this, turns[i]));
    }
  }
  if (asks_for_answer) out.own(answer);
  return out.take();
}

TokenIds FamilyTemplate::stop_tokens(const Tokenizer& tokenizer) const {
  TokenIds ids;
  const auto add = [&](std::string_view spelling) {
    const auto id = spelling.empty() ? std::nullopt : tokenizer.id_of(spelling);
    if (id && std::ranges::find(ids, *id) == ids.end()) ids.push_back(*id);
  };
  for (const std::string_view stop : family->stops) add(stop);
  add(eos);
  return ids;
}

}  // namespace halfbyte::models
