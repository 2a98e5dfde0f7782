#include "models/tokenizers/sentencepiece/encoder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <halfbyte/error.h>

#include "models/tokenizers/utf8_text.h"

namespace halfbyte::models::sentencepiece {
namespace {

constexpr std::size_t kPartBytes = 1 << 16;
constexpr std::string_view kReplacement = "\uFFFD";

PieceTrie user_defined(const ModelFile& model) {
  std::vector<PieceTrie::Entry> entries;
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type == PieceType::kUserDefined)
      entries.emplace_back(model.pieces[id].text, static_cast<std::int32_t>(id));
  }
  return PieceTrie(std::move(entries));
}

void erase_front(NormalizedText& text, std::size_t bytes) {
  text.bytes.erase(0, bytes);
  text.origins.erase(text.origins.begin(), text.origins.begin() + static_cast<std::ptrdiff_t>(bytes));
}

void append_with_spaces(std::string_view piece, std::string& out) {
  while (true) {
    const std::size_t at = piece.find(kSpaceSymbol);
    out += piece.substr(0, at);
    if (at == std::string_view::npos) return;
    out += ' ';
    piece.remove_prefix(at + kSpaceSymbol.size());
  }
}

// Bytes that pieces stand for one by one; what is no UTF-8 among them is U+FFFD for each byte.
void append_bytes(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t size = valid_character_size(bytes);
    out += size > 0 ? bytes.substr(0, size) : kReplacement;
    bytes.remove_prefix(std::max<std::size_t>(size, 1));
  }
}

// Writes the tokens of one text with the bytes that they stand for.
class TokenWriter {
 public:
  TokenWriter(const ModelFile& model, std::string_view source, std::size_t base, const TakeTokens& take)
      : model_(model), source_(source), base_(base), take_(take) {}

  void write(const NormalizedText& part, std::span<const Split> splits) {
    std::size_t at = 0;
    for (const auto [size, id] : splits) {
      const TokenSpan span = {id, base_ + part.origins[at], base_ + part.origins[at + size]};
      const bool is_unknown = id == model_.unknown_id;
      if (is_unknown && model_.byte_fallback) {
        write_bytes(std::string_view(part.bytes).substr(at, size), span);
      } else if (is_unknown && is_after_unknown_) {
        out_.back().end = span.end;  // a run of what is unknown is one token
      } else {
        out_.push_back(span);
      }
      is_after_unknown_ = is_unknown;
      at += size;
    }
    if (out_.size() > 1) hand_on(out_.size() - 1);  // the last may yet grow
  }

  void finish() { hand_on(out_.size()); }

 private:
  void hand_on(std::size_t count) {
    take_(std::span(out_).first(count));
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  // A byte stands for itself, or for all of what was replaced by others.
  void write_bytes(std::string_view bytes, TokenSpan span) {
    const bool is_unchanged = source_.substr(span.begin - base_, span.end - span.begin) == bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const std::int64_t id = model_.byte_ids[static_cast<unsigned char>(bytes[i])];
      out_.push_back(is_unchanged ? TokenSpan{id, span.begin + i, span.begin + i + 1}
                                  : TokenSpan{id, span.begin, span.end});
    }
  }

  const ModelFile& model_;
  const std::string_view source_;
  const std::size_t base_;
  const TakeTokens& take_;
  std::vector<TokenSpan> out_;  // not handed on yet
  bool is_after_unknown_ = false;
};

}  // namespace

Encoder::Encoder(std::string_view bytes, const std::string& name)
    : model_(parse_model(bytes, name)),
      normalizer_(model_.normalizer, model_.treat_whitespace_as_suffix, user_defined(model_), name),
      splitter_(model_.type == ModelType::kBpe ? make_bpe(model_) : make_unigram(model_)) {
  if (model_.denormalizer && !model_.denormalizer->charsmap.empty())
    denormalizer_ = std::make_unique<Normalizer>(*model_.denormalizer, false, PieceTrie(), name);
}

// The last place that no piece crosses and before which no space symbol stands: those at the end may yet be dropped.
std::size_t Encoder::last_cut(std::string_view text) const noexcept {
  std::size_t cut = 0;
  std::string_view left;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view right = text.substr(at, character_size(text.substr(at)));
    if (!left.empty() && left != kSpaceSymbol && left != " " && !splitter_->joins(left, right)) cut = at;
    at += right.size();
    left = right;
  }
  return cut;
}

void Encoder::encode(std::string_view text, std::size_t base, bool adds_dummy_prefix, Allowance& allowance,
                     const TakeTokens& take) const {
  Normalizer::Run run(normalizer_, text, adds_dummy_prefix && normalizer_.adds_dummy_prefix(), allowance);
  NormalizedText part;
  SplitState state;
  std::vector<Split> splits;
  TokenWriter writer(model_, text, base, take);
  while (!run.is_done()) {
    run.read(std::max(kPartBytes, part.bytes.size()), part);
    if (part.bytes.size() > std::numeric_limits<std::int32_t>::max())
      throw Error(ErrorCode::kInvalidArgument, "the text has more than 2 GB without a place to cut it");
    const std::size_t cut = run.is_done() ? part.bytes.size() : last_cut(part.bytes);
    splits.clear();
    splitter_->split(std::string_view(part.bytes).substr(0, cut), state, splits);
    writer.write(part, splits);
    erase_front(part, cut);
  }
  writer.finish();
}

std::string Encoder::decode(std::span<const std::int64_t> ids, bool drops_first_space) const {
  const NormalizerRules& rules = model_.normalizer;
  bool may_drop = drops_first_space && (rules.add_dummy_prefix || rules.remove_extra_whitespaces);
  std::string text;
  std::string bytes;
  for (const std::int64_t id : ids) {
    const Piece& piece = model_.pieces[static_cast<std::size_t>(id)];
    if (piece.type == PieceType::kByte) {
      bytes += static_cast<char>(std::stoi(piece.text.substr(3, 2), nullptr, 16));
      continue;
    }
    append_bytes(std::exchange(bytes, {}), text);
    may_drop = may_drop && text.empty();
    if (piece.type == PieceType::kUnknown) text += model_.unknown_surface;
    if (piece.type == PieceType::kUnknown || piece.type == PieceType::kControl) continue;
    std::string_view spelling = piece.text;
    if (may_drop && spelling.starts_with(kSpaceSymbol)) {
      spelling.remove_prefix(kSpaceSymbol.size());
      may_drop = rules.remove_extra_whitespaces;  // then all of them go
    }
    append_with_spaces(spelling, text);
  }
  append_bytes(bytes, text);
  return denormalizer_ ? denormalizer_->normalize(text) : text;
}

}  // namespace halfbyte::models::sentencepiece
