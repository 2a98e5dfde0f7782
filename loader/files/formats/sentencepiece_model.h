// tokenizer.model of a vocabulary that another format lists, as the protocol buffer that SentencePiece reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace halfbyte::files {

struct PieceVocabulary {
  enum class Kind : std::uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
  std::vector<std::string> tokens;
  std::vector<float> scores;  // empty: there are none
  std::vector<Kind> kinds;
};

struct PieceRules {
  std::optional<std::size_t> unknown, bos, eos, padding;  // ids
  bool adds_space_prefix = true;
  bool removes_extra_spaces = false;
};

// The bytes of a BPE model. What a model cannot have is repaired: an empty piece or one that is there already becomes
// an unused one, and one piece is the unknown one.
std::string sentencepiece_model(PieceVocabulary vocabulary, const PieceRules& rules);

}  // namespace halfbyte::files
