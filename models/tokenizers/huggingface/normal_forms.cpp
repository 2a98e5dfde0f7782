#include "models/tokenizers/huggingface/normal_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "models/tokenizers/huggingface/unicode_differences.h"
#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {
namespace {

constexpr char32_t kHangulBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161, kTailBase = 0x11A7;
constexpr auto kNoSequence = static_cast<utf8proc_uint16_t>(-1);  // utf8proc's mark of a character that is whole
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28;

struct MarkedChar {
  char32_t code;
  std::int64_t change;  // as TextRewriter::put's
  int combining_class;
};

bool is_composed(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }
bool is_compatible(NormalForm form) { return form == NormalForm::kNfkc || form == NormalForm::kNfkd; }

bool is_newer(char32_t code) {
  const auto after = std::upper_bound(std::begin(kNormalFormUnknown), std::end(kNormalFormUnknown), code,
                                      [](char32_t value, const CodeRange& range) { return value < range.first; });
  return after != std::begin(kNormalFormUnknown) && code <= (after - 1)->last;
}

int combining_class(char32_t code) {
  if (code < 0x300) return 0;
  const int known = utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
  return known != 0 && is_newer(code) ? 0 : known;
}

// The full decomposition of one character.
std::u32string_view decompose(char32_t code, bool compatible, utf8proc_int32_t (&buffer)[32]) {
  buffer[0] = static_cast<utf8proc_int32_t>(code);
  const auto* codes = reinterpret_cast<const char32_t*>(buffer);
  const bool is_hangul = code - kHangulBase < kLeads * kVowels * kTails;
  const bool is_whole = !is_hangul && utf8proc_get_property(buffer[0])->decomp_seqindex == kNoSequence;
  if (is_whole || is_newer(code)) return {codes, 1};
  int boundary = UTF8PROC_BOUNDCLASS_START;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  const auto length = utf8proc_decompose_char(buffer[0], buffer, 32, options, &boundary);
  return {codes, length > 0 ? static_cast<std::size_t>(length) : 1};
}

std::uint64_t pair_key(char32_t first, char32_t second) { return std::uint64_t{first} << 32 | second; }

// The one character that stands for a text, if there is one.
std::optional<char32_t> composed(std::u32string_view text) {
  std::vector<utf8proc_int32_t> codes(text.begin(), text.end());
  const auto length = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (length != 1) return std::nullopt;
  return static_cast<char32_t>(codes[0]);
}

std::unordered_map<std::uint64_t, char32_t> primary_composites() {
  std::unordered_map<std::uint64_t, char32_t> pairs;
  utf8proc_int32_t buffer[32];
  for (char32_t code = 0xC0; code < 0x30000; ++code) {
    if (code >= 0x3400 && code < 0xF900) continue;  // ideographs and Hangul
    if (utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->decomp_seqindex == kNoSequence) continue;
    const std::u32string_view whole = decompose(code, false, buffer);
    if (whole.size() < 2 || composed(whole) != code) continue;
    if (const auto first = composed(whole.substr(0, whole.size() - 1))) pairs[pair_key(*first, whole.back())] = code;
  }
  return pairs;
}

std::optional<char32_t> compose_hangul(char32_t first, char32_t second) {
  if (first - kLeadBase < kLeads && second - kVowelBase < kVowels)
    return kHangulBase + ((first - kLeadBase) * kVowels + (second - kVowelBase)) * kTails;
  const bool takes_tail = first - kHangulBase < kLeads * kVowels * kTails && (first - kHangulBase) % kTails == 0;
  if (takes_tail && second > kTailBase && second < kTailBase + kTails) return first + (second - kTailBase);
  return std::nullopt;
}

std::optional<char32_t> compose(char32_t first, char32_t second) {
  if (const auto syllable = compose_hangul(first, second)) return syllable;
  static const auto pairs = primary_composites();
  const auto found = pairs.find(pair_key(first, second));
  return found == pairs.end() ? std::nullopt : std::optional(found->second);
}

// Decomposes, orders and composes as characters come; holds one starter and the marks after it.
class Normaliser {
 public:
  Normaliser(TextRewriter& out, NormalForm form) : out_(out), form_(form) {}

  void push(char32_t code) {
    utf8proc_int32_t buffer[32];
    std::int64_t change = 0;
    for (const char32_t part : decompose(code, is_compatible(form_), buffer)) {
      const int order = combining_class(part);
      if (order == 0) flush_marks();
      if (order == 0) take({part, change, 0});
      if (order != 0) marks_.push_back({part, change, order});
      change = 1;
    }
  }

  void finish() {
    flush_marks();
    purge();
  }

 private:
  void flush_marks() {
    std::stable_sort(marks_.begin(), marks_.end(),
                     [](const MarkedChar& a, const MarkedChar& b) { return a.combining_class < b.combining_class; });
    for (const MarkedChar& mark : marks_) take(mark);
    marks_.clear();
  }

  void take(const MarkedChar& next) {
    if (!is_composed(form_)) return out_.put(next.code, next.change);
    if (!has_starter_) return begin_with(next);
    const bool is_blocked = !waiting_.empty() && waiting_.back().combining_class >= next.combining_class;
    if (!is_blocked) {
      if (const auto one = compose(starter_.code, next.code)) {
        starter_.code = *one;
        starter_.change += next.change - 1;
        return;
      }
    }
    if (next.combining_class != 0) return waiting_.push_back(next);
    purge();
    begin_with(next);
  }

  void begin_with(const MarkedChar& next) {
    if (next.combining_class != 0) return out_.put(next.code, next.change);
    starter_ = next;
    has_starter_ = true;
  }

  void purge() {
    if (has_starter_) out_.put(starter_.code, starter_.change);
    for (const MarkedChar& mark : waiting_) out_.put(mark.code, mark.change);
    has_starter_ = false;
    waiting_.clear();
  }

  TextRewriter& out_;
  NormalForm form_;
  std::vector<MarkedChar> marks_;  // decomposed, not yet ordered
  MarkedChar starter_{};
  bool has_starter_ = false;
  std::vector<MarkedChar> waiting_;  // marks after the starter that did not compose with it
};

// Below this, every character is its own normal form and composes with nothing before it.
constexpr char32_t kFirstChanging[] = {0x300, 0xC0, 0xA0, 0xA0};

bool is_left_alone(std::string_view text, NormalForm form) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return true;
  for (std::size_t i = 0; i < text.size(); i += utf8_bytes(text[i]))
    if (read_char(text.data() + i).code >= kFirstChanging[static_cast<int>(form)]) return false;
  return true;
}

}  // namespace

void to_normal_form(ChangingText& text, NormalForm form) {
  if (is_left_alone(text.text(), form)) return;
  const std::string_view old = text.text();
  TextRewriter out(text);
  Normaliser normaliser(out, form);
  for (std::size_t i = 0; i < old.size();) {
    const Utf8Char next = read_char(old.data() + i);
    normaliser.push(next.code);
    i += next.bytes;
  }
  normaliser.finish();
  out.finish();
}

}  // namespace halfbyte::models::huggingface
