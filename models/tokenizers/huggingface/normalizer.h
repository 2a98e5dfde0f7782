// Normalizers: how a text is changed before it is cut.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/tokenizers/huggingface/json.h"
#include "models/tokenizers/huggingface/piece.h"

namespace halfbyte::models::huggingface {

// May be used by many threads at once.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(ChangingText& text) const = 0;  // Errors: kCorrupt where it adds more than the text's allowance
  std::string where;                                 // the file and the place in it, for errors
};

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

// The stages of a tokenizer.json's normalizer, sequences flattened.
// Errors: kUnsupported for a type that is not known, kCorrupt.
Normalizers read_normalizers(const JsonField& json);
std::vector<std::string_view> normalizer_types();

// All stages, one after the other.
void normalize(const Normalizers& all, ChangingText& text);
std::string normalized(const Normalizers& all, std::string_view text, Allowance& allowance);

}  // namespace halfbyte::models::huggingface
