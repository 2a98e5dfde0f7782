#include "models/tokenizers/huggingface/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <utility>

#include <halfbyte/error.h>

#include "models/tokenizers/huggingface/regex_syntax.h"
#include "models/tokenizers/huggingface/utf8.h"

namespace halfbyte::models::huggingface {
namespace {

// Nearly every match is found within the first; the second is granted a few times a text (Allowance).
constexpr std::uint32_t kSteps = 20'000;
constexpr std::uint32_t kManySteps = 10'000'000;
constexpr std::uint32_t kHeapKib = 131'072;
constexpr std::size_t kMaxPatternBytes = 65'536;

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <class T, auto Free>
using Owned = std::unique_ptr<T, Deleter<Free>>;
using MatchContext = Owned<pcre2_match_context, pcre2_match_context_free_8>;

MatchContext match_context(std::uint32_t steps) {
  MatchContext context(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), steps);
  pcre2_set_depth_limit(context.get(), steps);
  pcre2_set_heap_limit(context.get(), kHeapKib);
  return context;
}

std::string message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct Regex::Compiled {
  std::string where;
  Owned<pcre2_code, pcre2_code_free_8> code;
  MatchContext few = match_context(kSteps);
  MatchContext many = match_context(kManySteps);
  bool has_jit = false;
};

Regex::Regex(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

namespace {

pcre2_code* compile(const std::string& pattern, std::uint32_t options, const std::string& where) {
  const Owned<pcre2_compile_context, pcre2_compile_context_free_8> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(context.get(), kMaxPatternBytes);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &at, context.get());
  if (code) return code;
  throw Error(ErrorCode::kUnsupported, where + ": PCRE2 refuses the regular expression: " + message(error));
}

}  // namespace

Regex Regex::compiled(std::string_view pattern, const std::string& where) {
  auto compiled = std::make_unique<Compiled>();
  compiled->where = where;
  if (pattern.size() > kMaxPatternBytes)
    throw Error(ErrorCode::kUnsupported, where + ": the regular expression has more than 65536 bytes");
  compiled->code.reset(
      compile(pcre2_pattern(pattern, where), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, where));
  compiled->has_jit = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(compiled));
}

Regex Regex::literal(std::string_view text, const std::string& where) {
  auto compiled = std::make_unique<Compiled>();
  compiled->where = where;
  compiled->code.reset(compile(std::string(text), PCRE2_UTF | PCRE2_LITERAL, where));
  compiled->has_jit = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(compiled));
}

struct Regex::Scan::State {
  State(const Compiled& compiled, std::string_view subject, Allowance& for_text)
      : regex(compiled), text(subject), allowance(for_text) {}

  const Compiled& regex;
  std::string_view text;
  Allowance& allowance;
  Owned<pcre2_match_data, pcre2_match_data_free_8> data{pcre2_match_data_create(1, nullptr)};
  std::size_t at = 0;
  std::optional<std::size_t> last_end;

  int search(std::size_t from) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const auto match = regex.has_jit ? pcre2_jit_match : pcre2_match;
    return match(regex.code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), regex.few.get());
  }

  // Without the JIT compiler, whose small stack or count of steps did not do.
  int search_long(std::size_t from) {
    if (!allowance.take_long_search()) return PCRE2_ERROR_MATCHLIMIT;
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    return pcre2_match(regex.code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(),
                       regex.many.get());
  }

  std::optional<Match> search_from(std::size_t from) {
    int found = search(from);
    if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT || found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = search_long(from);
    if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (found < 0)
      throw Error(
          ErrorCode::kUnsupported,
          regex.where + ": the regular expression went beyond PCRE2's limits on this text (" + message(found) + ")");
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    if (bounds[0] > bounds[1] || bounds[0] < from)
      throw Error(ErrorCode::kUnsupported, regex.where + ": the regular expression moves its match by \\K");
    return Match{bounds[0], bounds[1]};
  }
};

Regex::Scan::Scan(const Regex& regex, std::string_view text, Allowance& allowance)
    : state_(std::make_unique<State>(*regex.compiled_, text, allowance)) {}
Regex::Scan::~Scan() = default;

std::optional<Match> Regex::Scan::next() {
  State& state = *state_;
  while (state.at <= state.text.size()) {
    const auto match = state.search_from(state.at);
    if (!match) break;
    if (match->begin == match->end && state.last_end == match->end) {
      state.at += state.at < state.text.size() ? utf8_bytes(state.text[state.at]) : 1;
      continue;
    }
    state.at = match->end;
    state.last_end = match->end;
    return match;
  }
  state.at = state.text.size() + 1;
  return std::nullopt;
}

}  // namespace halfbyte::models::huggingface
