#include "loader/worst_tokens.h"

#include <algorithm>
#include <string_view>

namespace halfbyte {
namespace {

constexpr std::int64_t kTokensBefore = 32;
constexpr std::int64_t kTokensAfter = 8;

class Reader {
 public:
  Reader(const models::Tokenizer& tokenizer, const TokenIds& window, std::int64_t position)
      : tokenizer_(tokenizer),
        window_(window),
        position_(position),
        first_(std::max<std::int64_t>(position - kTokensBefore, 0)),
        before_(decoded(position)) {}

  const std::string& before() const { return before_; }
  // What one more token adds to the text: a token alone may lose its space, or be half a character.
  std::string next(std::int64_t token) const {
    TokenIds ids = ids_until(position_);
    ids.push_back(token);
    return grown(before_, tokenizer_.decode(ids, /*skip_special=*/false));
  }
  std::string after() const {
    const std::string through = decoded(position_ + 1);
    const auto size = static_cast<std::int64_t>(window_.size());
    return grown(through, decoded(std::min(position_ + 1 + kTokensAfter, size)));
  }

 private:
  static std::string grown(const std::string& less, const std::string& more) {
    return more.starts_with(less) ? more.substr(less.size()) : more;
  }
  TokenIds ids_until(std::int64_t end) const { return {window_.begin() + first_, window_.begin() + end}; }
  std::string decoded(std::int64_t end) const { return tokenizer_.decode(ids_until(end), /*skip_special=*/false); }

  const models::Tokenizer& tokenizer_;
  const TokenIds& window_;
  std::int64_t position_, first_;
  std::string before_;
};

// A text that begins in the middle of a character, from the next one on.
std::string from_whole_character(std::string text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  while (text.starts_with(kReplacement)) text.erase(0, kReplacement.size());
  const auto begin = std::ranges::find_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  return {begin, text.end()};
}

}  // namespace

std::vector<WorstToken> worst_tokens(const std::vector<TokenScore>& scores, std::int64_t count,
                                     const models::Windows& windows, const models::Tokenizer& tokenizer) {
  std::vector<TokenScore> worst = scores;
  const auto kept = std::min(worst.size(), static_cast<std::size_t>(count));
  std::ranges::partial_sort(worst, worst.begin() + static_cast<std::ptrdiff_t>(kept), std::ranges::greater(),
                            &TokenScore::divergence);
  worst.resize(kept);
  std::vector<WorstToken> out;
  for (const TokenScore& score : worst) {
    const TokenIds window = windows.window(score.window);
    const Reader reader(tokenizer, window, score.position);
    out.push_back({score, from_whole_character(reader.before()), reader.next(score.token), reader.after(),
                   reader.next(score.choice), reader.next(score.original_choice)});
  }
  return out;
}

}  // namespace halfbyte
