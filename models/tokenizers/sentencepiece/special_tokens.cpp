#include "models/tokenizers/sentencepiece/special_tokens.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace halfbyte::models::sentencepiece {
namespace {

// ChatGLM2 has the first five, ChatGLM3 all. "sop" and "eop" are parts of words: in a text they are letters.
constexpr std::pair<std::string_view, bool> kChatGlmTokens[] = {
    {"[MASK]", true},     {"[gMASK]", true},  {"[sMASK]", true},       {"sop", false},           {"eop", false},
    {"<|system|>", true}, {"<|user|>", true}, {"<|assistant|>", true}, {"<|observation|>", true}};

// What Python's str.isspace() says of a character, and its size in bytes.
constexpr std::string_view kSpaces[] = {"\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",   "\x1e",
                                        "\x1f",   " ",      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002",
                                        "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
                                        "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};

std::size_t leading_space(std::string_view text) {
  for (const std::string_view space : kSpaces) {
    if (text.starts_with(space)) return space.size();
  }
  return 0;
}

std::size_t trailing_space(std::string_view text) {
  for (const std::string_view space : kSpaces) {
    if (text.ends_with(space)) return space.size();
  }
  return 0;
}

void take_left_spaces(std::string_view text, Stretch& stretch) {
  while (const std::size_t size = leading_space(text.substr(stretch.begin, stretch.end - stretch.begin)))
    stretch.begin += size;
}

void take_right_spaces(std::string_view text, Stretch& stretch) {
  while (const std::size_t size = trailing_space(text.substr(stretch.begin, stretch.end - stretch.begin)))
    stretch.end -= size;
}

}  // namespace

SpecialTokenTable::SpecialTokenTable(const Config& config, const ModelFile& model) : tokens_(config.added) {
  std::unordered_map<std::string_view, std::int64_t> pieces;
  const auto pieces_size = static_cast<std::int64_t>(model.pieces.size());
  for (std::int64_t id = 0; id < pieces_size; ++id) {
    const Piece& piece = model.pieces[static_cast<std::size_t>(id)];
    pieces.emplace(piece.text, id);
    if (piece.type == PieceType::kControl) tokens_.try_emplace(id, AddedToken{.text = piece.text, .is_special = true});
  }
  std::vector<std::string> names = config.special;
  for (const auto& name : {config.bos, config.eos, config.unknown}) names.push_back(name.value_or(""));
  for (const std::string& name : names) {
    const auto found = pieces.find(name);
    if (found != pieces.end())
      tokens_.try_emplace(found->second, AddedToken{.text = name, .is_special = true}).first->second.is_special = true;
  }
  if (config.is_chatglm) {
    std::int64_t id = pieces_size;
    for (const auto& [text, is_parsed] : kChatGlmTokens)
      tokens_[id++] = {.text = std::string(text), .is_special = true, .is_parsed = is_parsed};
  }
  std::vector<std::string_view> parsed;
  std::vector<bool> is_plain;
  for (const auto& [id, token] : tokens_) {
    ids_.emplace(token.text, id);
    if (!token.is_parsed) continue;
    parsed.push_back(token.text);
    is_plain.push_back(!token.is_special);
    found_ids_.push_back(id);
  }
  patterns_ = huggingface::MultiPattern(parsed, is_plain);
}

const AddedToken* SpecialTokenTable::find(std::int64_t id) const noexcept {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

std::optional<std::int64_t> SpecialTokenTable::id_of(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<Stretch> SpecialTokenTable::stretches(std::string_view text, SpecialTokens special) const {
  using huggingface::MultiPattern;
  MultiPattern::Scan scan(patterns_, text, special == SpecialTokens::kParse ? MultiPattern::kAll : MultiPattern::kPart);
  std::vector<Stretch> stretches;
  std::size_t begin = 0;
  for (MultiPattern::Found found{}; scan.next(found);) {
    if (found.begin > begin) stretches.push_back({begin, found.begin, -1});
    stretches.push_back({found.begin, found.end, found_ids_[found.pattern]});
    begin = found.end;
  }
  if (begin < text.size()) stretches.push_back({begin, text.size(), -1});
  strip(text, stretches);
  return stretches;
}

// What is taken from a stretch of text may leave none of it.
void SpecialTokenTable::strip(std::string_view text, std::vector<Stretch>& stretches) const {
  for (std::size_t i = 0; i < stretches.size(); ++i) {
    Stretch& stretch = stretches[i];
    if (stretch.id < 0) continue;
    const AddedToken& token = *find(stretch.id);
    Stretch* const left = i > 0 && stretches[i - 1].id < 0 ? &stretches[i - 1] : nullptr;
    Stretch* const right = i + 1 < stretches.size() && stretches[i + 1].id < 0 ? &stretches[i + 1] : nullptr;
    if (right && token.strips_right) take_left_spaces(text, *right);
    if (left && token.strips_left) take_right_spaces(text, *left);
    if (!token.is_single_word) continue;
    if (left && left->end > left->begin && text[left->end - 1] != ' ') {
      left->end = stretch.end;
      stretch = {stretch.end, stretch.end, -1};
    } else if (right && right->end > right->begin && text[right->begin] != ' ') {
      right->begin = stretch.begin;
      stretch = {stretch.begin, stretch.begin, -1};
    }
  }
  std::erase_if(stretches, [](const Stretch& stretch) { return stretch.begin == stretch.end; });
}

}  // namespace halfbyte::models::sentencepiece
