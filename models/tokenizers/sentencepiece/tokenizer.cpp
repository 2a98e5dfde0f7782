#include "models/tokenizers/sentencepiece/tokenizer.h"

#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>

#include <halfbyte/error.h>

#include "models/tokenizers/sentencepiece/config.h"
#include "models/tokenizers/sentencepiece/encoder.h"
#include "models/tokenizers/sentencepiece/special_tokens.h"
#include "models/tokenizers/utf8_text.h"
#include "models/tokenizers/whole_file.h"

namespace halfbyte::models {
namespace {

using sentencepiece::AddedToken;
using sentencepiece::Config;
using sentencepiece::Encoder;
using sentencepiece::SpecialTokenTable;
using sentencepiece::Stretch;
using sentencepiece::TakeTokens;

constexpr std::uintmax_t kMaxModelBytes = std::uintmax_t{1} << 27;

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::filesystem::path& path, const Config& config)
      : encoder_(read_whole_file(path, kMaxModelBytes), path.string()),
        tokens_(config, encoder_.model()),
        is_legacy_(config.is_legacy || config.is_chatglm),
        adds_prefix_space_(config.adds_prefix_space) {
    for (std::size_t id = 0; id < pieces().size(); ++id) ids_.emplace(pieces()[id].text, static_cast<std::int64_t>(id));
    if (config.is_chatglm) {
      prefix_ = {*tokens_.id_of("[gMASK]"), *tokens_.id_of("sop")};
      return;
    }
    if (config.adds_bos) append_if_known(config.bos.value_or(encoder_.model().bos_piece), prefix_);
    if (config.adds_eos) append_if_known(config.eos.value_or(encoder_.model().eos_piece), suffix_);
  }

  std::vector<TokenSpan> encode_spans(std::string_view bytes, SpecialTokens special) const override {
    const Utf8Text utf8(bytes);
    std::vector<TokenSpan> out;
    encode_text(utf8.text(), special,
                [&](std::span<const TokenSpan> tokens) { out.insert(out.end(), tokens.begin(), tokens.end()); });
    if (utf8.text().data() != bytes.data()) to_source(utf8, out);
    return out;
  }

  TokenIds encode(std::string_view bytes, SpecialTokens special) const override {
    TokenIds ids;
    encode_text(Utf8Text(bytes).text(), special, [&](std::span<const TokenSpan> tokens) {
      for (const TokenSpan& token : tokens) ids.push_back(token.id);
    });
    return ids;
  }

  std::string decode(const TokenIds& ids, bool skip_special) const override {
    std::string text;
    TokenIds run;
    bool is_first = true;
    const auto flush = [&] {
      if (!run.empty()) text += encoder_.decode(run, is_legacy_ || is_first);
      is_first = is_first && run.empty();
      run.clear();
    };
    for (const std::int64_t id : ids) {
      check(id);
      const AddedToken* token = tokens_.find(id);
      if (!token) {
        if (static_cast<std::size_t>(id) < pieces().size()) run.push_back(id);
      } else if (!token->is_special || !skip_special) {
        flush();
        text += token->text;
        is_first = false;
      }
    }
    flush();
    return text;
  }

  // Ids between the pieces and the added tokens are spelled as nothing.
  std::string piece(std::int64_t id) const override {
    check(id);
    if (const AddedToken* token = tokens_.find(id)) return token->text;
    const auto index = static_cast<std::size_t>(id);
    return index < pieces().size() ? pieces()[index].text : "";
  }

  bool is_special(std::int64_t id) const override {
    check(id);
    const AddedToken* token = tokens_.find(id);
    return token && token->is_special;
  }

  std::optional<std::int64_t> id_of(std::string_view piece) const override {
    if (const auto id = tokens_.id_of(piece)) return id;
    const auto found = ids_.find(piece);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  const TokenIds& prefix() const override { return prefix_; }
  const TokenIds& suffix() const override { return suffix_; }
  std::int64_t vocab_size() const override {
    return std::max(static_cast<std::int64_t>(pieces().size()), tokens_.end_id());
  }

 private:
  const std::vector<sentencepiece::Piece>& pieces() const noexcept { return encoder_.model().pieces; }

  void append_if_known(const std::string& piece, TokenIds& out) const {
    if (const auto id = id_of(piece)) out.push_back(*id);
  }

  void encode_text(std::string_view text, SpecialTokens special, const TakeTokens& take) const {
    const std::vector<Stretch> stretches = tokens_.stretches(text, special);
    Allowance allowance(text.size());
    for (const Stretch& stretch : stretches) {
      const bool is_first = &stretch == stretches.data();
      if (stretch.id < 0) {
        const bool adds_space = is_legacy_ || (adds_prefix_space_ && is_first);
        encoder_.encode(text.substr(stretch.begin, stretch.end - stretch.begin), stretch.begin, adds_space, allowance,
                        take);
        continue;
      }
      if (is_first && !is_legacy_ && adds_prefix_space_ && !tokens_.find(stretch.id)->is_special) take_space(take);
      const TokenSpan token = {stretch.id, stretch.begin, stretch.end};
      take({&token, 1});
    }
  }

  // The space before the text, alone.
  void take_space(const TakeTokens& take) const {
    const auto id = id_of(sentencepiece::kSpaceSymbol);
    if (!id || !encoder_.model().normalizer.add_dummy_prefix) return;
    const TokenSpan token = {*id, 0, 0};
    take({&token, 1});
  }

  static void to_source(const Utf8Text& utf8, std::vector<TokenSpan>& spans) {
    for (TokenSpan& span : spans) {
      const bool is_empty = span.begin == span.end;
      span.begin = utf8.source(span.begin, Utf8Text::Side::kBegin);
      span.end = is_empty ? span.begin : utf8.source(span.end, Utf8Text::Side::kEnd);
    }
  }

  void check(std::int64_t id) const {
    if (id >= 0 && id < vocab_size()) return;
    throw Error(ErrorCode::kInvalidArgument, "token id " + std::to_string(id) + " is beyond the tokenizer's " +
                                                 std::to_string(vocab_size()) + " pieces");
  }

  Encoder encoder_;
  SpecialTokenTable tokens_;
  bool is_legacy_;
  bool adds_prefix_space_;
  std::unordered_map<std::string_view, std::int64_t> ids_;
  TokenIds prefix_;
  TokenIds suffix_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentencepiece(const std::filesystem::path& model, const std::filesystem::path& config) {
  return std::make_unique<SentencePieceTokenizer>(model, sentencepiece::read_config(config));
}

}  // namespace halfbyte::models
