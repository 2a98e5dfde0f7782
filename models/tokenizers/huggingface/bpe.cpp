#include "models/tokenizers/huggingface/bpe.h"

#include <algorithm>
#include <array>

#include <halfbyte/error.h>

#include "models/json/printable.h"
#include "models/tokenizers/huggingface/byte_alphabet.h"
#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {
namespace {

constexpr std::uint32_t kNoSymbol = UINT32_MAX;
constexpr char32_t kSmallCodes = 0x10000;

std::string byte_token(std::size_t byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
}

bool has_all(const std::vector<std::uint32_t>& symbols) {
  return !symbols.empty() && std::find(symbols.begin(), symbols.end(), kNoSymbol) == symbols.end();
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, BpeOptions options, const Merges& merges, const std::string& where)
    : Model(std::move(vocabulary)), options_(std::move(options)), where_(where) {
  if (options_.unk_token) unk_id_ = vocabulary_.find(*options_.unk_token);
  find_symbols();
  if (options_.ignore_merges && options_.words_are_bytes) find_whole_words();
  add_merges(merges);
  find_cuts(merges);
}

void Bpe::find_symbols() {
  const auto id_or_none = [this](std::string_view token) { return vocabulary_.find(token).value_or(kNoSymbol); };
  if (options_.words_are_bytes) {
    for (const std::string& token : byte_alphabet()) small_symbols_.push_back(id_or_none(token));
  } else {
    small_symbols_.assign(kSmallCodes, kNoSymbol);
    for (std::uint32_t id = 0; id < vocabulary_.id_end(); ++id) {
      const std::string_view token = vocabulary_.token(id);
      if (token.empty() || utf8_bytes(token[0]) != token.size() || token.size() > 3) continue;
      small_symbols_[read_char(token.data()).code] = id_or_none(token);
    }
  }
  if (!options_.byte_fallback) return;
  for (std::size_t byte = 0; byte < 256; ++byte) byte_symbols_.push_back(id_or_none(byte_token(byte)));
}

void Bpe::find_whole_words() {
  std::vector<std::pair<std::string, std::uint32_t>> words;
  for (std::uint32_t id = 0; id < vocabulary_.id_end(); ++id)
    if (auto bytes = bytes_of_alphabet(vocabulary_.token(id)); vocabulary_.has(id) && bytes)
      words.emplace_back(std::move(*bytes), id);
  whole_words_.emplace(words, where_);
}

void Bpe::add_merges(const Merges& merges) {
  merges_.reserve(merges.size());
  const std::size_t prefix = options_.continuing_subword_prefix.size();
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const auto fail = [&](const std::string& problem) {
      throw Error(ErrorCode::kCorrupt, where_ + ": merges[" + std::to_string(rank) + "]: " + problem);
    };
    const auto id = [&](const std::string& token) {
      const auto found = vocabulary_.find(token);
      if (!found) fail(in_quotes(token) + " is not in the vocabulary");
      return *found;
    };
    const std::uint32_t left_id = id(left), right_id = id(right);
    if (right.size() < prefix || (right.size() > prefix && is_continuation(right[prefix])))
      fail(in_quotes(right) + " does not begin with the prefix of continued words");
    merges_.set(left_id, right_id, static_cast<std::uint32_t>(rank), id(left + right.substr(prefix)));
  }
}

bool Bpe::has_all_symbols() const {
  if (options_.words_are_bytes) return unk_id_ || has_all(small_symbols_);
  return options_.byte_fallback ? has_all(byte_symbols_) : unk_id_.has_value();
}

std::vector<std::uint32_t> Bpe::outer_symbols(std::string_view token, bool at_end) const {
  std::vector<std::uint32_t> symbols;
  const auto add = [&](std::size_t bytes) {
    if (bytes == 0 || bytes > token.size()) return;
    const auto found = vocabulary_.find(at_end ? token.substr(token.size() - bytes) : token.substr(0, bytes));
    if (found) symbols.push_back(*found);
  };
  const Utf8Char outer = at_end ? read_last_char(token) : read_char(token.data());
  add(outer.bytes);
  if (options_.byte_fallback) add(byte_token(0).size());
  if (unk_id_ && (at_end ? token.ends_with(*options_.unk_token) : token.starts_with(*options_.unk_token)))
    symbols.push_back(*unk_id_);
  return symbols;
}

// A merge can join neighbours only where its left token may end with the one and its right token begin with the other.
void Bpe::find_cuts(const Merges& merges) {
  const bool has_affixes = !options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty();
  if (options_.ignore_merges || has_affixes || vocabulary_.has_shared_ids() || !has_all_symbols()) return;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (const auto& [left, right] : merges) {
    if (left.empty() || right.empty()) return;
    for (const std::uint32_t last : outer_symbols(left, true))
      for (const std::uint32_t first : outer_symbols(right, false)) pairs.emplace_back(last, first);
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  reaching_.reserve(pairs.size());
  for (const auto& [left, right] : pairs) reaching_.add(left, right);
  cuts_ = true;
}

std::uint32_t Bpe::unk_id() const {
  if (unk_id_) return *unk_id_;
  throw Error(ErrorCode::kCorrupt,
              where_ + ": unk_token " + in_quotes(*options_.unk_token) + " is not in the vocabulary");
}

std::optional<std::uint32_t> Bpe::symbol(char32_t code, std::string_view text) const {
  if (code >= small_symbols_.size()) return vocabulary_.find(text);
  return small_symbols_[code] == kNoSymbol ? std::nullopt : std::optional(small_symbols_[code]);
}

// The symbols of one word on their way to tokens.
class Bpe::Run {
 public:
  Run(const Bpe& bpe, std::string_view word, Workspace& space)
      : bpe_(bpe), word_(word), space_(space), cuts_(bpe.cuts_ && word.size() > WordCache::kMaxBytes) {
    space_.symbols.clear();
  }

  void run() {
    if (bpe_.options_.words_are_bytes) {
      for (std::size_t i = 0; i < word_.size(); ++i)
        add(bpe_.small_symbols_[static_cast<unsigned char>(word_[i])], word_.substr(i, 1));
    } else {
      add_chars();
    }
    flush_unknown();
    flush();
  }

 private:
  void add_chars() {
    const std::string& prefix = bpe_.options_.continuing_subword_prefix;
    const std::string& suffix = bpe_.options_.end_of_word_suffix;
    for (std::size_t i = 0, end = 0; i < word_.size(); i = end) {
      const Utf8Char next = read_char(word_.data() + i);
      end = i + next.bytes;
      const std::string_view text = word_.substr(i, next.bytes);
      if ((i > 0 && !prefix.empty()) || (end == word_.size() && !suffix.empty())) {
        const std::string spelled = (i > 0 ? prefix : "") + std::string(text) + (end == word_.size() ? suffix : "");
        add(bpe_.vocabulary_.find(spelled).value_or(kNoSymbol), spelled, text.size());
      } else {
        add(bpe_.symbol(next.code, text).value_or(kNoSymbol), text);
      }
    }
  }

  void add(std::uint32_t id, std::string_view text) { add(id, text, text.size()); }
  void add(std::uint32_t id, std::string_view spelled, std::size_t bytes) {
    if (id != kNoSymbol) {
      flush_unknown();
      return push(id, static_cast<std::uint32_t>(bytes));
    }
    if (bpe_.options_.byte_fallback && add_bytes(spelled, bytes)) return;
    if (bpe_.options_.unk_token) add_unknown(static_cast<std::uint32_t>(bytes));
  }

  // The library leaves an unknown token that waits where it is: after the bytes.
  bool add_bytes(std::string_view text, std::size_t bytes) {
    const auto id = [this](char c) { return bpe_.byte_symbols_[static_cast<unsigned char>(c)]; };
    if (std::any_of(text.begin(), text.end(), [&](char c) { return id(c) == kNoSymbol; })) return false;
    space_.allowance->add(text.size() - bytes, bpe_.where_);
    for (const char c : text) push(id(c), 1);
    return true;
  }

  void add_unknown(std::uint32_t bytes) {
    bpe_.unk_id();
    if (!bpe_.options_.fuse_unk) flush_unknown();
    unknown_bytes_ += bytes;
  }

  void flush_unknown() {
    if (unknown_bytes_ > 0) push(bpe_.unk_id(), unknown_bytes_);
    unknown_bytes_ = 0;
  }

  void push(std::uint32_t id, std::uint32_t bytes) {
    auto& symbols = space_.symbols;
    if (cuts_ && !symbols.empty() && !bpe_.reaching_.has(symbols.back().id, id)) flush();
    symbols.push_back({id, bytes, 0, 0});
    length_ += bytes;
  }

  // Merges what was pushed; no merge reaches beyond it.
  void flush() {
    const bool is_part = length_ < word_.size() && length_ <= WordCache::kMaxBytes && cuts_;
    if (is_part) {
      flush_part();
    } else {
      merge_and_emit();
    }
    space_.symbols.clear();
    begin_ += length_;
    length_ = 0;
  }

  void flush_part() {
    const auto place = space_.cache.find(word_.substr(begin_, length_));
    if (place.matches) {
      for (std::size_t i = 0; i < place.word->count; ++i)
        space_.tokens.push_back({place.word->ids[i], begin_ + place.word->begins[i], begin_ + place.word->ends[i]});
      return;
    }
    const std::size_t first = space_.tokens.size();
    const std::uint32_t begin = begin_;
    begin_ = 0;
    merge_and_emit();
    const std::span<WordToken> tokens = std::span(space_.tokens).subspan(first);
    WordCache::store(place, tokens);
    for (WordToken& token : tokens) token = {token.id, token.begin + begin, token.end + begin};
    begin_ = begin;
  }

  void merge_and_emit() {
    const std::size_t count =
        merge_symbols(bpe_.merges_, space_, 0, space_.symbols.size(), bpe_.vocabulary_.has_shared_ids());
    std::uint32_t at = begin_;
    for (std::size_t i = 0; i < count; ++i) {
      space_.tokens.push_back({space_.symbols[i].id, at, at + space_.symbols[i].length});
      at += space_.symbols[i].length;
    }
  }

  const Bpe& bpe_;
  std::string_view word_;
  Workspace& space_;
  bool cuts_;
  std::uint32_t begin_ = 0;   // of the symbols at hand, in the word
  std::uint32_t length_ = 0;  // of the symbols at hand, bytes
  std::uint32_t unknown_bytes_ = 0;
};

void Bpe::tokenize(std::string_view word, Workspace& space) const {
  if (options_.ignore_merges) {
    if (const auto id = (whole_words_ ? *whole_words_ : vocabulary_).find(word))
      return space.tokens.push_back({*id, 0, static_cast<std::uint32_t>(word.size())});
  }
  Run(*this, word, space).run();
}

}  // namespace halfbyte::models::huggingface
