// Pre-tokenizers: how a normalised text is cut into the words that the model sees.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/tokenizers/huggingface/json.h"
#include "models/tokenizers/huggingface/piece.h"

namespace halfbyte::models::huggingface {

// May be used by many threads at once.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  std::string where;  // the file and the place in it, for errors
  // Hands on the parts of `piece`, from left to right, as they are found.
  virtual void cut(const Piece& piece, PieceSink& sink) const = 0;
};

// The stages of a tokenizer.json's pre_tokenizer, sequences flattened.
struct PreTokenizers {
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  bool ends_in_bytes = false;  // the last was ByteLevel, and leaves its alphabet to the model
  bool looks_at_origins = false;
};

// With `leaves_bytes`, a ByteLevel at the end hands on the bytes themselves, not the characters that stand for them.
// Errors: kUnsupported for a type that is not known, kCorrupt.
PreTokenizers read_pre_tokenizers(const JsonField& json, bool leaves_bytes);
std::vector<std::string_view> pre_tokenizer_types();
std::vector<std::string_view> delimiter_behaviors();  // "Removed", ...
std::vector<std::string_view> prepend_schemes();      // of Metaspace

// All stages, one after the other.
void cut_by_all(const PreTokenizers& all, const Piece& piece, PieceSink& sink);

}  // namespace halfbyte::models::huggingface
