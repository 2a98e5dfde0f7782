#include "models/tokenizers/huggingface/normalizer.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/normal_forms.h"
#include "models/tokenizers/huggingface/precompiled_charsmap.h"
#include "models/tokenizers/huggingface/regex.h"
#include "models/tokenizers/huggingface/unicode.h"
#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {
namespace {

class ToNormalForm : public Normalizer {
 public:
  explicit ToNormalForm(NormalForm form) : form_(form) {}
  void apply(ChangingText& text) const override { to_normal_form(text, form_); }

 private:
  NormalForm form_;
};

// Calls map(code, out) for each character; map writes what becomes of it.
template <class Map>
void rewrite_chars(ChangingText& text, Map map) {
  const std::string_view old = text.text();
  TextRewriter out(text);
  while (out.position() < old.size()) {
    const Utf8Char next = read_char(old.data() + out.position());
    map(next, out);
  }
  out.finish();
}

template <class Keeps>
void filter_chars(ChangingText& text, Keeps keeps) {
  rewrite_chars(text, [&](Utf8Char c, TextRewriter& out) { keeps(c.code) ? out.keep(c.bytes) : out.skip(c.bytes); });
}

void lowercase(ChangingText& text) {
  std::u32string lower;
  rewrite_chars(text, [&](Utf8Char c, TextRewriter& out) {
    lower.clear();
    append_lowercase(lower, c.code);
    out.replace_next(to_utf8(lower));
  });
}

class Lowercase : public Normalizer {
 public:
  void apply(ChangingText& text) const override { lowercase(text); }
};

class StripAccents : public Normalizer {
 public:
  void apply(ChangingText& text) const override {
    filter_chars(text, [](char32_t code) { return !is_mark(code); });
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(ChangingText& text) const override {
    std::string_view rest = text.text();
    while (left_ && !rest.empty() && is_white_space(read_char(rest.data()).code))
      rest.remove_prefix(read_char(rest.data()).bytes);
    const auto removed = static_cast<std::size_t>(rest.data() - text.text().data());
    while (right_ && !rest.empty() && is_white_space(read_last_char(rest).code))
      rest.remove_suffix(read_last_char(rest).bytes);
    if (rest.size() == text.text().size()) return;
    TextRewriter out(text);
    out.skip(removed);
    out.keep(rest.size());
    out.finish();
  }

 private:
  bool left_;
  bool right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(ChangingText& text) const override {
    if (text.text().empty()) return;
    TextRewriter out(text);
    out.prepend(prefix_);
    out.keep(text.text().size());
    out.finish();
  }

 private:
  std::string prefix_;
};

class ReplaceText : public Normalizer {
 public:
  ReplaceText(std::string pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(ChangingText& text) const override {
    const std::string_view old = text.text();
    std::size_t found = old.find(pattern_);
    if (pattern_.empty() || found == std::string_view::npos) return;
    TextRewriter out(text);
    for (; found != std::string_view::npos; found = old.find(pattern_, out.position())) {
      out.keep(found - out.position());
      out.skip(pattern_.size());
      out.insert(content_);
    }
    out.keep(old.size() - out.position());
    out.finish();
  }

 private:
  std::string pattern_;
  std::string content_;
};

class ReplaceMatches : public Normalizer {
 public:
  ReplaceMatches(Regex regex, std::string content) : regex_(std::move(regex)), content_(std::move(content)) {}
  void apply(ChangingText& text) const override {
    const std::string_view old = text.text();
    if (old.empty()) return;
    Regex::Scan scan(regex_, old, text.allowance());
    TextRewriter out(text);
    while (const auto match = scan.next()) {
      out.keep(match->begin - out.position());
      out.skip(match->end - match->begin);
      out.insert(content_);
    }
    out.keep(old.size() - out.position());
    out.finish();
  }

 private:
  Regex regex_;
  std::string content_;
};

// What NMT's models expect: no control characters, and a space for everything that looks like one.
class Nmt : public Normalizer {
 public:
  void apply(ChangingText& text) const override {
    filter_chars(text, [](char32_t c) { return !is_dropped(c); });
    rewrite_chars(text,
                  [](Utf8Char c, TextRewriter& out) { is_space(c.code) ? out.replace_next(" ") : out.keep(c.bytes); });
  }

 private:
  static bool is_dropped(char32_t c) {
    return (c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
  }
  static bool is_space(char32_t c) {
    return c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
           c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  }
};

class ByteLevel : public Normalizer {
 public:
  void apply(ChangingText& text) const override {
    if (text.text().empty()) return;
    TextRewriter out(text);
    out.spell_bytes();
    out.finish();
  }
};

class Bert : public Normalizer {
 public:
  explicit Bert(const JsonField& json)
      : cleans_(json.boolean_or("clean_text", true)),
        spaces_ideographs_(json.boolean_or("handle_chinese_chars", true)),
        lowers_(json.boolean_or("lowercase", true)),
        strips_accents_(json.boolean_or("strip_accents", lowers_)) {}

  void apply(ChangingText& text) const override {
    if (cleans_) clean(text);
    if (spaces_ideographs_) space_ideographs(text);
    if (strips_accents_) {
      to_normal_form(text, NormalForm::kNfd);
      filter_chars(text, [](char32_t code) { return !is_nonspacing_mark(code); });
    }
    if (lowers_) lowercase(text);
  }

 private:
  static bool is_kept_control(char32_t c) { return c == '\t' || c == '\n' || c == '\r'; }
  static void clean(ChangingText& text) {
    filter_chars(text, [](char32_t c) { return is_kept_control(c) || (c != 0 && c != 0xFFFD && !is_other(c)); });
    rewrite_chars(text, [](Utf8Char c, TextRewriter& out) {
      is_white_space(c.code) ? out.replace_next(" ") : out.keep(c.bytes);
    });
  }
  static void space_ideographs(ChangingText& text) {
    rewrite_chars(text, [](Utf8Char c, TextRewriter& out) {
      const bool is_apart = is_ideograph_of_bert(c.code);
      if (is_apart) out.prepend(" ");
      out.keep(c.bytes);
      if (is_apart) out.insert(" ");
    });
  }

  bool cleans_;
  bool spaces_ideographs_;
  bool lowers_;
  bool strips_accents_;
};

void read(const JsonField& json, Normalizers& all);

void read_sequence(const JsonField& json, Normalizers& all) {
  for (const JsonField& item : json.at("normalizers").items()) read(item, all);
}

template <NormalForm Form>
void read_form(const JsonField&, Normalizers& all) {
  all.push_back(std::make_unique<ToNormalForm>(Form));
}

template <class Plain>
void read_plain(const JsonField&, Normalizers& all) {
  all.push_back(std::make_unique<Plain>());
}

void read_strip(const JsonField& json, Normalizers& all) {
  all.push_back(std::make_unique<Strip>(json.boolean_or("strip_left", true), json.boolean_or("strip_right", true)));
}

void read_prepend(const JsonField& json, Normalizers& all) {
  all.push_back(std::make_unique<Prepend>(json.at("prepend").string()));
}

void read_replace(const JsonField& json, Normalizers& all) {
  const JsonField pattern = json.at("pattern");
  const std::string content = json.at("content").string();
  if (const auto text = pattern.find("String")) {
    all.push_back(std::make_unique<ReplaceText>(text->string(), content));
    return;
  }
  const JsonField regex = pattern.at("Regex");
  all.push_back(std::make_unique<ReplaceMatches>(Regex::compiled(regex.string(), regex.path()), content));
}

void read_precompiled(const JsonField& json, Normalizers& all) {
  const auto map = json.find("precompiled_charsmap");
  if (map && !map->string().empty()) all.push_back(std::make_unique<PrecompiledCharsmap>(map->string(), map->path()));
}

void read_bert(const JsonField& json, Normalizers& all) { all.push_back(std::make_unique<Bert>(json)); }

struct Row {
  std::string_view type;
  void (*read)(const JsonField&, Normalizers&);
};

constexpr Row kRows[] = {{"Sequence", read_sequence},
                         {"NFC", read_form<NormalForm::kNfc>},
                         {"NFD", read_form<NormalForm::kNfd>},
                         {"NFKC", read_form<NormalForm::kNfkc>},
                         {"NFKD", read_form<NormalForm::kNfkd>},
                         {"Lowercase", read_plain<Lowercase>},
                         {"Strip", read_strip},
                         {"StripAccents", read_plain<StripAccents>},
                         {"Prepend", read_prepend},
                         {"Replace", read_replace},
                         {"Nmt", read_plain<Nmt>},
                         {"Precompiled", read_precompiled},
                         {"BertNormalizer", read_bert},
                         {"ByteLevel", read_plain<ByteLevel>}};

void read(const JsonField& json, Normalizers& all) { read_stage(json, kRows, "normalizers", all); }

}  // namespace

Normalizers read_normalizers(const JsonField& json) {
  Normalizers all;
  read(json, all);
  return all;
}

std::vector<std::string_view> normalizer_types() { return types_of(kRows); }

void normalize(const Normalizers& all, ChangingText& text) {
  for (const auto& stage : all) {
    text.begin_step(stage->where);
    stage->apply(text);
  }
}

std::string normalized(const Normalizers& all, std::string_view text, Allowance& allowance) {
  ChangingText changing({text, nullptr, 0}, false, allowance);
  normalize(all, changing);
  return std::string(changing.text());
}

}  // namespace halfbyte::models::huggingface
