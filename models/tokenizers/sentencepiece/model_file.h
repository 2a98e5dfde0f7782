// tokenizer.model read and checked: what SentencePiece's ModelProto says that splitting and joining text needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::models::sentencepiece {

enum class PieceType : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Piece {
  std::string text;
  float score = 0;  // finite
  PieceType type = PieceType::kNormal;
};

enum class ModelType { kUnigram = 1, kBpe = 2 };

struct NormalizerRules {
  std::string charsmap;  // "precompiled_charsmap"; empty: none. Checked by Charsmap
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

struct ModelFile {
  std::vector<Piece> pieces;  // by id; at least one, none empty, exactly one kUnknown
  ModelType type = ModelType::kUnigram;
  std::int64_t unknown_id = -1;
  bool byte_fallback = false;          // then every byte has its piece
  std::vector<std::int32_t> byte_ids;  // [256], -1: none
  bool treat_whitespace_as_suffix = false;
  std::string unknown_surface = " \u2047 ";
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  NormalizerRules normalizer;
  std::optional<NormalizerRules> denormalizer;
};

// Source: sentencepiece_model.proto of github.com/google/sentencepiece.
// Errors: kCorrupt naming `name`; kUnsupported for models of words and of characters.
ModelFile parse_model(std::string_view bytes, const std::string& name);

}  // namespace halfbyte::models::sentencepiece
