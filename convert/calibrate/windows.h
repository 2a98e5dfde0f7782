// Token ids of many texts to sequences of one length.
#pragma once

#include <cstdint>
#include <vector>

#include "models/tokenizers/tokenizer.h"

namespace halfbyte::convert::calibrate {

struct WindowOptions {
  std::int64_t tokens;   // of all sequences, at most
  std::int64_t context;  // of each
  // What each begins with, unless its text does.
  models::TokenIds prefix = {};
};

// Texts one after another, cut where a sequence is full; what does not fill one is left out.
class Windows {
 public:
  explicit Windows(WindowOptions options) : options_(std::move(options)) {}

  void add(const models::TokenIds& text) { ids_.insert(ids_.end(), text.begin(), text.end()); }
  // More would be left out.
  bool is_full() const noexcept { return std::ssize(ids_) >= options_.tokens; }
  std::int64_t size() const noexcept { return std::ssize(ids_); }  // tokens that were added
  std::vector<models::TokenIds> cut() const;

 private:
  WindowOptions options_;
  models::TokenIds ids_;
};

}  // namespace halfbyte::convert::calibrate
