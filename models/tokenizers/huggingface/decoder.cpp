#include "models/tokenizers/huggingface/decoder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/byte_alphabet.h"
#include "models/tokenizers/huggingface/regex.h"
#include "models/tokenizers/huggingface/utf8.h"
#include "models/tokenizers/utf8_text.h"

namespace halfbyte::models::huggingface {
namespace {

using Tokens = std::vector<std::string>;

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

// With `content`, which is no longer than `old`, in its place.
std::string replaced(std::string_view text, std::string_view old, std::string_view content) {
  if (old.empty()) return std::string(text);
  std::string result;
  std::size_t begin = 0;
  for (std::size_t at = text.find(old); at != std::string_view::npos; at = text.find(old, begin)) {
    result.append(text.substr(begin, at - begin)).append(content);
    begin = at + old.size();
  }
  return result.append(text.substr(begin));
}

// A token in which matches become another text, which may be longer.
class ChangedToken {
 public:
  ChangedToken(std::string_view token, Allowance& allowance, const std::string& where)
      : token_(token), most_(token.size() + allowance.left()), allowance_(allowance), where_(where) {}

  void replace(std::size_t begin, std::size_t end, std::string_view content) {
    const std::string_view kept = token_.substr(done_, begin - done_);
    if (kept.size() + content.size() > most_ - text_.size()) Allowance::refuse(where_);
    text_.append(kept).append(content);
    done_ = end;
  }

  std::string finish() {
    text_.append(token_.substr(done_));
    allowance_.add(text_.size() - std::min(text_.size(), token_.size()), where_);
    return std::move(text_);
  }

 private:
  std::string_view token_;
  std::size_t most_;  // bytes that may be written
  Allowance& allowance_;
  const std::string& where_;
  std::string text_;
  std::size_t done_ = 0;
};

class ByteLevel : public Decoder {
 public:
  void apply(Tokens& tokens, Allowance&) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += bytes_of_alphabet(token).value_or(token);
    tokens.assign(1, repaired_utf8(bytes));
  }
};

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

// The byte that "<0x41>" stands for.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with(">")) return std::nullopt;
  const auto low = hex_digit(token[4]);
  if (token[3] == '+') return low ? std::optional(static_cast<char>(*low)) : std::nullopt;  // as Rust reads numbers
  const auto high = hex_digit(token[3]);
  if (!high || !low) return std::nullopt;
  return static_cast<char>(*high * 16 + *low);
}

class ByteFallback : public Decoder {
 public:
  void apply(Tokens& tokens, Allowance&) const override {
    Tokens result;
    std::string bytes;
    for (std::string& token : tokens) {
      if (const auto byte = byte_of(token)) {
        bytes.push_back(*byte);
        continue;
      }
      flush(bytes, result);
      result.push_back(std::move(token));
    }
    flush(bytes, result);
    tokens = std::move(result);
  }

 private:
  static void flush(std::string& bytes, Tokens& result) {
    if (bytes.empty()) return;
    if (valid_utf8_prefix(bytes) == bytes.size()) {
      result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
    }
    bytes.clear();
  }
};

class Fuse : public Decoder {
 public:
  void apply(Tokens& tokens, Allowance&) const override { tokens.assign(1, joined(tokens)); }
};

class Strip : public Decoder {
 public:
  Strip(char32_t content, std::size_t left, std::size_t right) : left_(left), right_(right) {
    append_utf8(content_, content);
  }
  void apply(Tokens& tokens, Allowance&) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (std::size_t i = 0; i < left_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (std::size_t i = 0; i < right_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      token = std::string(rest);
    }
  }

 private:
  std::string content_;
  std::size_t left_;
  std::size_t right_;
};

class ReplaceText : public Decoder {
 public:
  ReplaceText(std::string pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(Tokens& tokens, Allowance& allowance) const override {
    for (std::string& token : tokens) {
      std::size_t at = token.find(pattern_);
      if (pattern_.empty() || at == std::string::npos) continue;
      ChangedToken changed(token, allowance, where);
      for (; at != std::string::npos; at = token.find(pattern_, at + pattern_.size()))
        changed.replace(at, at + pattern_.size(), content_);
      token = changed.finish();
    }
  }

 private:
  std::string pattern_;
  std::string content_;
};

class ReplaceMatches : public Decoder {
 public:
  ReplaceMatches(Regex regex, std::string content) : regex_(std::move(regex)), content_(std::move(content)) {}
  void apply(Tokens& tokens, Allowance& allowance) const override {
    for (std::string& token : tokens) {
      if (token.empty()) continue;
      ChangedToken changed(token, allowance, where);
      Regex::Scan scan(regex_, token, allowance);
      while (const auto match = scan.next()) changed.replace(match->begin, match->end, content_);
      token = changed.finish();
    }
  }

 private:
  Regex regex_;
  std::string content_;
};

class Metaspace : public Decoder {
 public:
  Metaspace(char32_t replacement, bool prepends) : prepends_(prepends) { append_utf8(replacement_, replacement); }
  void apply(Tokens& tokens, Allowance&) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replaced(tokens[i], replacement_, i == 0 && prepends_ ? "" : " ");
  }

 private:
  std::string replacement_;
  bool prepends_;
};

class Bpe : public Decoder {
 public:
  explicit Bpe(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(Tokens& tokens, Allowance&) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replaced(tokens[i], suffix_, i + 1 < tokens.size() ? " " : "");
  }

 private:
  std::string suffix_;
};

std::string cleaned(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [old, content] : kRules) text = replaced(text, old, content);
  return text;
}

class WordPiece : public Decoder {
 public:
  WordPiece(std::string prefix, bool cleans) : prefix_(std::move(prefix)), cleans_(cleans) {}
  void apply(Tokens& tokens, Allowance&) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) tokens[i] = tokens[i].starts_with(prefix_) ? tokens[i].substr(prefix_.size()) : " " + tokens[i];
      if (cleans_) tokens[i] = cleaned(std::move(tokens[i]));
    }
  }

 private:
  std::string prefix_;
  bool cleans_;
};

class Ctc : public Decoder {
 public:
  explicit Ctc(const JsonField& json)
      : pad_(json.string_or("pad_token", "<pad>")),
        delimiter_(json.string_or("word_delimiter_token", "|")),
        cleans_(json.boolean_or("cleanup", true)) {}
  void apply(Tokens& tokens, Allowance&) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      token = replaced(token, pad_, "");
      if (cleans_) token = replaced(cleaned(std::move(token)), delimiter_, " ");
    }
    std::erase_if(tokens, [](const std::string& token) { return token.empty(); });
  }

 private:
  std::string pad_;
  std::string delimiter_;
  bool cleans_;
};

void read(const JsonField& json, Decoders& all);

void read_sequence(const JsonField& json, Decoders& all) {
  for (const JsonField& item : json.at("decoders").items()) read(item, all);
}

template <class Plain>
void read_plain(const JsonField&, Decoders& all) {
  all.push_back(std::make_unique<Plain>());
}

void read_strip(const JsonField& json, Decoders& all) {
  all.push_back(
      std::make_unique<Strip>(character(json.at("content")), count_or(json, "start", 0), count_or(json, "stop", 0)));
}

void read_replace(const JsonField& json, Decoders& all) {
  const JsonField pattern = json.at("pattern");
  const std::string content = json.at("content").string();
  if (const auto text = pattern.find("String")) {
    all.push_back(std::make_unique<ReplaceText>(text->string(), content));
    return;
  }
  const JsonField regex = pattern.at("Regex");
  all.push_back(std::make_unique<ReplaceMatches>(Regex::compiled(regex.string(), regex.path()), content));
}

void read_metaspace(const JsonField& json, Decoders& all) {
  const bool adds = json.boolean_or("add_prefix_space", true);
  const bool prepends = json.string_or("prepend_scheme", adds ? "always" : "never") != "never";
  all.push_back(std::make_unique<Metaspace>(character(json.at("replacement")), prepends));
}

void read_bpe(const JsonField& json, Decoders& all) {
  all.push_back(std::make_unique<Bpe>(json.string_or("suffix", "</w>")));
}

void read_wordpiece(const JsonField& json, Decoders& all) {
  all.push_back(std::make_unique<WordPiece>(json.string_or("prefix", "##"), json.boolean_or("cleanup", true)));
}

void read_ctc(const JsonField& json, Decoders& all) { all.push_back(std::make_unique<Ctc>(json)); }

struct Row {
  std::string_view type;
  void (*read)(const JsonField&, Decoders&);
};

constexpr Row kRows[] = {{"Sequence", read_sequence},
                         {"ByteLevel", read_plain<ByteLevel>},
                         {"ByteFallback", read_plain<ByteFallback>},
                         {"Fuse", read_plain<Fuse>},
                         {"Strip", read_strip},
                         {"Replace", read_replace},
                         {"Metaspace", read_metaspace},
                         {"BPEDecoder", read_bpe},
                         {"WordPiece", read_wordpiece},
                         {"CTC", read_ctc}};

void read(const JsonField& json, Decoders& all) { read_stage(json, kRows, "decoders", all); }

}  // namespace

Decoders read_decoders(const JsonField& json) {
  Decoders all;
  read(json, all);
  return all;
}

std::vector<std::string_view> decoder_types() { return types_of(kRows); }

}  // namespace halfbyte::models::huggingface
