// Decoders: how the spellings of tokens become text again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/tokenizers/allowance.h"
#include "models/tokenizers/huggingface/json.h"

namespace halfbyte::models::huggingface {

// May be used by many threads at once.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // Errors: kCorrupt where it adds more than `allowance`.
  virtual void apply(std::vector<std::string>& tokens, Allowance& allowance) const = 0;
  std::string where;  // the file and the place in it, for errors
};

using Decoders = std::vector<std::unique_ptr<Decoder>>;

// The stages of a tokenizer.json's decoder, sequences flattened.
// Errors: kUnsupported for a type that is not known, kCorrupt.
Decoders read_decoders(const JsonField& json);
std::vector<std::string_view> decoder_types();

}  // namespace halfbyte::models::huggingface
