#include "models/tokenizers/huggingface/pre_tokenizer.h"

#include <algorithm>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/byte_alphabet.h"
#include "models/tokenizers/huggingface/delimiter.h"
#include "models/tokenizers/huggingface/patterns.h"
#include "models/tokenizers/huggingface/regex.h"
#include "models/tokenizers/huggingface/unicode.h"
#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {
namespace {

struct BehaviorRow {
  std::string_view type;
  DelimiterBehavior behavior;
};

constexpr BehaviorRow kBehaviors[] = {{"Removed", DelimiterBehavior::kRemoved},
                                      {"Isolated", DelimiterBehavior::kIsolated},
                                      {"MergedWithPrevious", DelimiterBehavior::kMergedWithPrevious},
                                      {"MergedWithNext", DelimiterBehavior::kMergedWithNext},
                                      {"Contiguous", DelimiterBehavior::kContiguous}};

DelimiterBehavior read_behavior(const JsonField& json) {
  for (const auto& [name, behavior] : kBehaviors)
    if (json.string() == name) return behavior;
  json.fail(in_quotes(json.string()) + " is no way to treat delimiters");
}

using Predicate = bool (*)(char32_t) noexcept;

// Cuts at every character of a kind.
class CharSplit : public PreTokenizer {
 public:
  CharSplit(Predicate is_delimiter, DelimiterBehavior behavior) : is_delimiter_(is_delimiter), behavior_(behavior) {}
  void cut(const Piece& piece, PieceSink& sink) const override {
    DelimiterCutter cutter(piece, behavior_, false, sink);
    for (std::size_t i = 0; i < piece.text.size();) {
      const Utf8Char next = read_char(piece.text.data() + i);
      if (is_delimiter_(next.code)) cutter.delimiter(i, i + next.bytes);
      i += next.bytes;
    }
    cutter.finish();
  }

 private:
  Predicate is_delimiter_;
  DelimiterBehavior behavior_;
};

class DelimiterSplit : public PreTokenizer {
 public:
  explicit DelimiterSplit(char32_t delimiter) { append_utf8(delimiter_, delimiter); }
  void cut(const Piece& piece, PieceSink& sink) const override {
    DelimiterCutter cutter(piece, DelimiterBehavior::kRemoved, false, sink);
    for (std::size_t i = piece.text.find(delimiter_); i != std::string_view::npos;
         i = piece.text.find(delimiter_, i + delimiter_.size()))
      cutter.delimiter(i, i + delimiter_.size());
    cutter.finish();
  }

 private:
  std::string delimiter_;
};

class RegexSplit : public PreTokenizer {
 public:
  RegexSplit(Regex regex, DelimiterBehavior behavior, bool inverted)
      : regex_(std::move(regex)), behavior_(behavior), is_inverted_(inverted) {}
  void cut(const Piece& piece, PieceSink& sink) const override {
    DelimiterCutter cutter(piece, behavior_, is_inverted_, sink);
    Regex::Scan scan(regex_, piece.text, sink.allowance());
    while (const auto match = scan.next()) cutter.delimiter(match->begin, match->end);
    cutter.finish();
  }

 private:
  Regex regex_;
  DelimiterBehavior behavior_;
  bool is_inverted_;
};

// Words of \w, and runs of what is neither \w nor white.
class Whitespace : public PreTokenizer {
 public:
  void cut(const Piece& piece, PieceSink& sink) const override {
    std::size_t begin = 0;
    int kind = 0;
    for (std::size_t i = 0; i < piece.text.size();) {
      const Utf8Char next = read_char(piece.text.data() + i);
      const int next_kind = is_word(next.code) ? 1 : is_white_space(next.code) ? 0 : 2;
      if (next_kind != kind) {
        if (kind != 0) sink.take(piece.part(begin, i));
        begin = i;
        kind = next_kind;
      }
      i += next.bytes;
    }
    if (kind != 0 && begin < piece.text.size()) sink.take(piece.part(begin, piece.text.size()));
  }
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(std::size_t chars) : chars_(chars) {}
  void cut(const Piece& piece, PieceSink& sink) const override {
    std::size_t begin = 0, chars = 0;
    for (std::size_t i = 0; i < piece.text.size(); i += utf8_bytes(piece.text[i])) {
      if (chars == chars_) {
        sink.take(piece.part(begin, i));
        begin = i;
        chars = 0;
      }
      ++chars;
    }
    if (chars > 0) sink.take(piece.part(begin, piece.text.size()));
  }

 private:
  std::size_t chars_;
};

enum class PrependScheme { kAlways, kFirst, kNever };

struct SchemeRow {
  std::string_view type;
  PrependScheme scheme;
};

constexpr SchemeRow kSchemes[] = {
    {"always", PrependScheme::kAlways}, {"first", PrependScheme::kFirst}, {"never", PrependScheme::kNever}};

class Metaspace : public PreTokenizer {
 public:
  Metaspace(char32_t replacement, PrependScheme scheme, bool splits) : scheme_(scheme), splits_(splits) {
    append_utf8(replacement_, replacement);
  }

  void cut(const Piece& piece, PieceSink& sink) const override {
    if (piece.text.empty()) return;
    ChangingText text(piece, piece.origins || piece.begin != Piece::kUnknown, sink.allowance());
    text.begin_step(where);
    const bool prepends = is_prepended(piece);
    if (prepends || piece.text.find(' ') != std::string_view::npos) rewrite(text, prepends);
    if (splits_) return split(text.piece(), sink);
    sink.take(text.piece());
  }

 private:
  bool is_prepended(const Piece& piece) const {
    if (scheme_ == PrependScheme::kNever || piece.text.starts_with(replacement_)) return false;
    if (piece.text.starts_with(' ')) return false;  // becomes the replacement
    return scheme_ == PrependScheme::kAlways || piece.begins_text();
  }

  void rewrite(ChangingText& text, bool prepends) const {
    const std::string_view old = text.text();
    TextRewriter out(text);
    if (prepends) out.prepend(replacement_);
    for (std::size_t i = 0; i < old.size();) {
      const std::size_t space = std::min(old.find(' ', i), old.size());
      out.keep(space - i);
      if (space < old.size()) out.replace_next(replacement_);
      i = space + 1;
    }
    out.finish();
  }

  void split(const Piece& piece, PieceSink& sink) const {
    DelimiterCutter cutter(piece, DelimiterBehavior::kMergedWithNext, false, sink);
    for (std::size_t i = piece.text.find(replacement_); i != std::string_view::npos;
         i = piece.text.find(replacement_, i + replacement_.size()))
      cutter.delimiter(i, i + replacement_.size());
    cutter.finish();
  }

  std::string replacement_;
  PrependScheme scheme_;
  bool splits_;
};

// Adds ByteLevel's leading space.
class LeadingSpace : public PreTokenizer {
 public:
  void cut(const Piece& piece, PieceSink& sink) const override {
    if (piece.text.empty()) return;
    if (piece.text.starts_with(' ')) return sink.take(piece);
    ChangingText text(piece, piece.origins || piece.begin != Piece::kUnknown, sink.allowance());
    text.begin_step(where);
    TextRewriter out(text);
    out.prepend(" ");
    out.keep(piece.text.size());
    out.finish();
    sink.take(text.piece());
  }
};

class ToByteAlphabet : public PreTokenizer {
 public:
  void cut(const Piece& piece, PieceSink& sink) const override {
    ChangingText text(piece, piece.origins || piece.begin != Piece::kUnknown, sink.allowance());
    text.begin_step(where);
    TextRewriter out(text);
    out.spell_bytes();
    out.finish();
    sink.take(text.piece());
  }
};

using Stages = std::vector<std::unique_ptr<PreTokenizer>>;

struct PartialPreTokenizers {
  PreTokenizers result;
  bool leaves_bytes;
};

void read(const JsonField& json, PartialPreTokenizers& partial, bool is_last);

void read_sequence(const JsonField& json, PartialPreTokenizers& partial, bool is_last) {
  const auto items = json.at("pretokenizers").items();
  for (std::size_t i = 0; i < items.size(); ++i) read(items[i], partial, is_last && i + 1 == items.size());
}

void read_byte_level(const JsonField& json, PartialPreTokenizers& partial, bool is_last) {
  Stages& stages = partial.result.stages;
  if (json.boolean_or("add_prefix_space", true)) stages.push_back(std::make_unique<LeadingSpace>());
  if (json.boolean_or("use_regex", true))
    stages.push_back(
        std::make_unique<RegexSplit>(Regex::compiled(kGpt2Pattern, json.path()), DelimiterBehavior::kIsolated, false));
  partial.result.ends_in_bytes = is_last && partial.leaves_bytes;
  if (!partial.result.ends_in_bytes) stages.push_back(std::make_unique<ToByteAlphabet>());
}

void read_split(const JsonField& json, PartialPreTokenizers& partial, bool) {
  const JsonField pattern = json.at("pattern");
  const auto text = pattern.find("String");
  const std::string where = pattern.path();
  Regex regex = text ? Regex::literal(text->string(), where) : Regex::compiled(pattern.at("Regex").string(), where);
  partial.result.stages.push_back(std::make_unique<RegexSplit>(std::move(regex), read_behavior(json.at("behavior")),
                                                               json.boolean_or("invert", false)));
}

PrependScheme read_scheme(const JsonField& json) {
  const bool adds = json.boolean_or("add_prefix_space", true);
  const std::string name = json.string_or("prepend_scheme", adds ? "always" : "never");
  for (const auto& [known, scheme] : kSchemes)
    if (name == known) return scheme;
  json.fail(in_quotes(name) + " is no prepend_scheme");
}

void read_metaspace(const JsonField& json, PartialPreTokenizers& partial, bool) {
  const PrependScheme scheme = read_scheme(json);
  partial.result.looks_at_origins |= scheme == PrependScheme::kFirst;
  partial.result.stages.push_back(
      std::make_unique<Metaspace>(character(json.at("replacement")), scheme, json.boolean_or("split", true)));
}

void read_whitespace(const JsonField&, PartialPreTokenizers& partial, bool) {
  partial.result.stages.push_back(std::make_unique<Whitespace>());
}

void read_whitespace_split(const JsonField&, PartialPreTokenizers& partial, bool) {
  partial.result.stages.push_back(std::make_unique<CharSplit>(is_white_space, DelimiterBehavior::kRemoved));
}

void read_digits(const JsonField& json, PartialPreTokenizers& partial, bool) {
  const bool individual = json.boolean_or("individual_digits", false);
  partial.result.stages.push_back(std::make_unique<CharSplit>(
      is_numeric, individual ? DelimiterBehavior::kIsolated : DelimiterBehavior::kContiguous));
}

void read_punctuation(const JsonField& json, PartialPreTokenizers& partial, bool) {
  const auto behavior = json.find("behavior");
  partial.result.stages.push_back(
      std::make_unique<CharSplit>(is_punctuation, behavior ? read_behavior(*behavior) : DelimiterBehavior::kIsolated));
}

void read_bert(const JsonField&, PartialPreTokenizers& partial, bool) {
  partial.result.stages.push_back(std::make_unique<CharSplit>(is_white_space, DelimiterBehavior::kRemoved));
  partial.result.stages.push_back(std::make_unique<CharSplit>(is_punctuation, DelimiterBehavior::kIsolated));
}

void read_delimiter(const JsonField& json, PartialPreTokenizers& partial, bool) {
  partial.result.stages.push_back(std::make_unique<DelimiterSplit>(character(json.at("delimiter"))));
}

void read_fixed_length(const JsonField& json, PartialPreTokenizers& partial, bool) {
  const std::uint32_t length = count_or(json, "length", 5);
  if (length == 0) json.fail("length is 0");
  partial.result.stages.push_back(std::make_unique<FixedLength>(length));
}

struct Row {
  std::string_view type;
  void (*read)(const JsonField&, PartialPreTokenizers&, bool);
};

constexpr Row kRows[] = {{"Sequence", read_sequence},
                         {"ByteLevel", read_byte_level},
                         {"Split", read_split},
                         {"Metaspace", read_metaspace},
                         {"Whitespace", read_whitespace},
                         {"WhitespaceSplit", read_whitespace_split},
                         {"Digits", read_digits},
                         {"Punctuation", read_punctuation},
                         {"BertPreTokenizer", read_bert},
                         {"CharDelimiterSplit", read_delimiter},
                         {"FixedLength", read_fixed_length}};

void read(const JsonField& json, PartialPreTokenizers& partial, bool is_last) {
  const std::size_t first = partial.result.stages.size();
  row_of_type(json, json.at("type").string(), kRows, "pre-tokenizers").read(json, partial, is_last);
  name_stages(json, partial.result.stages, first);
  if (partial.result.stages.size() > kMaxStages)
    json.fail("more than " + std::to_string(kMaxStages) + " pre-tokenizers");
}

// Hands what one stage cuts to the next.
class Chain : public PieceSink {
 public:
  Chain(std::span<const std::unique_ptr<PreTokenizer>> stages, PieceSink& end)
      : PieceSink(end.allowance()), stages_(stages), end_(end) {}
  void take(const Piece& piece) override {
    if (stages_.empty()) return end_.take(piece);
    if (stages_.size() == 1) return stages_.front()->cut(piece, end_);
    Chain rest(stages_.subspan(1), end_);
    stages_.front()->cut(piece, rest);
  }

 private:
  std::span<const std::unique_ptr<PreTokenizer>> stages_;
  PieceSink& end_;
};

}  // namespace

PreTokenizers read_pre_tokenizers(const JsonField& json, bool leaves_bytes) {
  PartialPreTokenizers partial{{}, leaves_bytes};
  read(json, partial, true);
  return std::move(partial.result);
}

std::vector<std::string_view> pre_tokenizer_types() { return types_of(kRows); }
std::vector<std::string_view> delimiter_behaviors() { return types_of(kBehaviors); }
std::vector<std::string_view> prepend_schemes() { return types_of(kSchemes); }

void cut_by_all(const PreTokenizers& all, const Piece& piece, PieceSink& sink) { Chain(all.stages, sink).take(piece); }

}  // namespace halfbyte::models::huggingface
