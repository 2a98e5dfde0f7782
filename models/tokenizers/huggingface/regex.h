// Regular expressions of a tokenizer file, matched by PCRE2 within limits of steps and memory.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "models/tokenizers/allowance.h"

namespace halfbyte::models::huggingface {

struct Match {
  std::size_t begin;
  std::size_t end;
};

// May be used by many threads at once.
class Regex {
 public:
  // `pattern` is Oniguruma's. Errors: kCorrupt or kUnsupported, naming `where` and what PCRE2 says.
  static Regex compiled(std::string_view pattern, const std::string& where);
  static Regex literal(std::string_view text, const std::string& where);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The matches of one text, from left to right; an empty one does not follow another match at once.
  // Errors: kUnsupported when the expression needs more steps or memory than PCRE2's limits allow it.
  class Scan {
   public:
    // Valid UTF-8; all outlive the scan. Long searches come out of `allowance`.
    Scan(const Regex& regex, std::string_view text, Allowance& allowance);
    Scan(const Scan&) = delete;
    Scan& operator=(const Scan&) = delete;
    ~Scan();
    std::optional<Match> next();

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Compiled;
  explicit Regex(std::unique_ptr<Compiled> compiled);
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace halfbyte::models::huggingface
