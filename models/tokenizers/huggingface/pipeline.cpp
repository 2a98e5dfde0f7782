#include "models/tokenizers/huggingface/pipeline.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/unicode.h"
#include "models/tokenizers/huggingface/utf8.h"
#include "models/tokenizers/utf8_text.h"

namespace halfbyte::models::huggingface {
namespace {

constexpr std::size_t kMaxTextBytes = std::numeric_limits<std::uint32_t>::max() / 4;  // places are kept in 32 bits

}  // namespace

// Where tokens go: only their ids, or their spans too.
class Pipeline::Output {
 public:
  explicit Output(TokenIds& ids) : ids_(&ids) {}
  Output(std::vector<TokenSpan>& spans, const Pipeline& pipeline, std::string_view text)
      : spans_(&spans), pipeline_(&pipeline), text_(text) {}
  bool wants_spans() const noexcept { return spans_ != nullptr; }

  // Bytes [begin, end) of `word`. An added token shows the text that it was found as.
  void add(std::uint32_t id, const Piece& word, std::size_t begin, std::size_t end, bool is_added = false) {
    if (ids_) return ids_->push_back(id);
    spans_->push_back(span(id, word, begin, end));
    if (!pipeline_->parts_.post.trims_spans) return;
    const bool shows_text = is_added || pipeline_->parts_.model->shows_text(id);
    const std::string_view shown = shows_text ? word.text.substr(begin, end - begin) : pipeline_->spelling(id);
    trim(spans_->back(), shown, spans_->size() == 1);
  }

 private:
  TokenSpan span(std::uint32_t id, const Piece& word, std::size_t begin, std::size_t end) const {
    if (end > begin && end <= word.text.size()) {
      const Origin origin = word.origin(begin, end);
      return {id, origin.begin, origin.end};
    }
    // The library counts an affix's bytes too; what lies beyond the word, it takes for a place in the text.
    begin = std::min(begin, text_.size());
    end = std::clamp(end, begin, text_.size());
    while (begin > 0 && begin < text_.size() && is_continuation(text_[begin])) --begin;
    while (end < text_.size() && is_continuation(text_[end])) ++end;
    return {id, begin, end};
  }

  // Takes off as many characters as the shown text has white space at that end.
  void trim(TokenSpan& token, std::string_view shown, bool is_first) const {
    const auto is_space = [](char32_t code) { return code == 0x120 || is_white_space(code); };
    const std::u32string codes = to_utf32(shown);
    auto leading = std::find_if_not(codes.begin(), codes.end(), is_space) - codes.begin();
    auto trailing = std::find_if_not(codes.rbegin(), codes.rend(), is_space) - codes.rbegin();
    if (leading == 1 && pipeline_->parts_.post.keeps_added_space && (is_first || token.begin == 0)) leading = 0;
    for (; leading > 0 && token.begin < token.end; --leading) token.begin += utf8_bytes(text_[token.begin]);
    for (; trailing > 0 && token.end > token.begin; --trailing)
      token.end -= read_last_char(text_.substr(token.begin, token.end - token.begin)).bytes;
  }

  TokenIds* ids_ = nullptr;
  std::vector<TokenSpan>* spans_ = nullptr;
  const Pipeline* pipeline_ = nullptr;
  std::string_view text_;
};

// A workspace of one thread, from those that lie idle.
class Pipeline::Lease {
 public:
  explicit Lease(const Pipeline& owner) : owner_(owner) {
    const std::lock_guard lock(owner.mutex_);
    if (owner.idle_.empty()) {
      space_ = std::make_unique<Workspace>();
    } else {
      space_ = std::move(owner.idle_.back());
      owner.idle_.pop_back();
    }
  }
  ~Lease() {
    space_->release_large();
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(space_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Workspace& operator*() { return *space_; }

 private:
  const Pipeline& owner_;
  std::unique_ptr<Workspace> space_;
};

// One text on its way through the stages; takes the words that come out of the pre-tokenizers.
class Pipeline::Encoding : public PieceSink {
 public:
  Encoding(const Pipeline& pipeline, Output& output, Workspace& space, Allowance& allowance, SpecialTokens special)
      : PieceSink(allowance),
        parts_(pipeline.parts_),
        output_(output),
        space_(space),
        parses_special_(special == SpecialTokens::kParse) {
    space_.allowance = &allowance;
    follows_origins_ = output.wants_spans() || (parts_.pre_tokenizers.looks_at_origins && !parts_.normalizers.empty());
  }

  void run(std::string_view text) {
    AddedTokens::Finder::Scan scan(parts_.added.in_raw_text(), text, parses_special_);
    AddedStretch stretch{};
    const Piece whole{text, nullptr, 0};
    while (scan.next(stretch)) {
      const Piece piece = whole.part(stretch.begin, stretch.end);
      stretch.token ? add_token(*stretch.token, piece) : normalize(piece);
    }
  }

  void take(const Piece& word) override {
    if (word.text.empty()) return;
    if (word.text.size() > WordCache::kMaxBytes) return tokenize(word);
    const auto place = space_.cache.find(word.text);
    if (!place.matches) {
      tokenize(word);
      return WordCache::store(place, space_.tokens);
    }
    for (std::size_t i = 0; i < place.word->count; ++i)
      output_.add(place.word->ids[i], word, place.word->begins[i], place.word->ends[i]);
  }

 private:
  void add_token(const AddedToken& token, const Piece& piece) {
    output_.add(token.id, piece, 0, piece.text.size(), true);
  }

  void normalize(const Piece& piece) {
    ChangingText text(piece, follows_origins_, allowance());
    huggingface::normalize(parts_.normalizers, text);
    AddedTokens::Finder::Scan scan(parts_.added.in_normalized_text(), text.text(), parses_special_);
    AddedStretch stretch{};
    while (scan.next(stretch)) {
      const Piece part = text.piece().part(stretch.begin, stretch.end);
      stretch.token ? add_token(*stretch.token, part) : cut_by_all(parts_.pre_tokenizers, part, *this);
    }
  }

  void tokenize(const Piece& word) {
    space_.tokens.clear();
    parts_.model->tokenize(word.text, space_);
    for (const WordToken& token : space_.tokens) output_.add(token.id, word, token.begin, token.end);
  }

  const Components& parts_;
  Output& output_;
  Workspace& space_;
  bool parses_special_;
  bool follows_origins_;
};

Pipeline::Pipeline(Components components)
    : parts_(std::move(components)), id_end_(std::max(parts_.model->vocabulary().id_end(), parts_.added.id_end())) {}

void Pipeline::encode_into(Output& output, std::string_view text, SpecialTokens special) const {
  if (text.size() > kMaxTextBytes)
    throw Error(ErrorCode::kInvalidArgument, "a text of more than 1 GiB cannot become tokens at once; split it");
  Lease space(*this);
  Allowance allowance(text.size());
  Encoding(*this, output, *space, allowance, special).run(text);
}

TokenIds Pipeline::encode(std::string_view text, SpecialTokens special) const {
  TokenIds ids;
  Output output(ids);
  encode_into(output, Utf8Text(text).text(), special);
  return ids;
}

std::vector<TokenSpan> Pipeline::encode_spans(std::string_view text, SpecialTokens special) const {
  std::vector<TokenSpan> spans;
  const Utf8Text valid(text);
  Output output(spans, *this, valid.text());
  encode_into(output, valid.text(), special);
  for (TokenSpan& token : spans) {
    token.begin = valid.source(token.begin);
    token.end = valid.source(token.end);
  }
  return spans;
}

std::string_view Pipeline::spelling(std::int64_t id) const {
  if (id < 0 || id >= id_end_)
    throw Error(ErrorCode::kInvalidArgument,
                "token id " + std::to_string(id) + " is beyond the tokenizer's " + std::to_string(id_end_) + " tokens");
  const AddedToken* added = parts_.added.find(static_cast<std::uint32_t>(id));
  return added ? added->spelling : parts_.model->vocabulary().token(static_cast<std::uint32_t>(id));
}

std::string Pipeline::piece(std::int64_t id) const { return std::string(spelling(id)); }

std::optional<std::int64_t> Pipeline::id_of(std::string_view piece) const {
  if (const AddedToken* added = parts_.added.find(piece)) return added->id;
  return parts_.model->vocabulary().find(piece);
}

std::string Pipeline::decode(const TokenIds& ids, bool skip_special) const {
  std::vector<std::string> tokens;
  std::size_t bytes = 0;
  for (const std::int64_t id : ids) {
    const std::string_view token = spelling(id);
    const auto narrow = static_cast<std::uint32_t>(id);
    if (!parts_.added.find(narrow) && !parts_.model->vocabulary().has(narrow)) continue;  // a hole
    if (skip_special && parts_.added.is_special(token)) continue;
    tokens.emplace_back(token);
    bytes += token.size();
  }
  Allowance allowance(bytes);
  for (const auto& stage : parts_.decoders) stage->apply(tokens, allowance);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) text += (i > 0 && !parts_.has_decoder ? " " : "") + tokens[i];
  return text;
}

}  // namespace halfbyte::models::huggingface
