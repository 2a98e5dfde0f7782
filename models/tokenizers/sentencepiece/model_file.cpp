#include "models/tokenizers/sentencepiece/model_file.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <unordered_set>

#include <halfbyte/error.h>

#include "models/tokenizers/sentencepiece/model_fields.h"

namespace halfbyte::models::sentencepiece {
namespace {

constexpr std::size_t kMaxPieceBytes = 8000;  // as SentencePiece has it

Piece parse_piece(std::string_view message) {
  Piece piece;
  Fields fields(message);
  for (Field field; fields.next(field);) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    if (field.number == 3 && field.value >= 1 && field.value <= 6) piece.type = static_cast<PieceType>(field.value);
  }
  return piece;
}

void parse_normalizer(std::string_view message, NormalizerRules& rules) {
  Fields fields(message);
  for (Field field; fields.next(field);) {
    if (field.number == 2) rules.charsmap = field.bytes;
    if (field.number == 3) rules.add_dummy_prefix = field.value != 0;
    if (field.number == 4) rules.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) rules.escape_whitespaces = field.value != 0;
  }
}

// Returns the number of the model's type: 3 is of words, 4 of characters.
void parse_trainer(std::string_view message, ModelFile& model, std::uint64_t& type) {
  Fields fields(message);
  for (Field field; fields.next(field);) {
    switch (field.number) {
      case 3:
        type = field.value;
        break;
      case 24:
        model.treat_whitespace_as_suffix = field.value != 0;
        break;
      case 35:
        model.byte_fallback = field.value != 0;
        break;
      case 44:
        model.unknown_surface = field.bytes;
        break;
      case 46:
        model.bos_piece = field.bytes;
        break;
      case 47:
        model.eos_piece = field.bytes;
        break;
      default:
        break;
    }
  }
}

// "<0x0A>" -> 10; negative: no such piece.
int byte_of(const std::string& text) {
  int value = -1;
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
  return error == std::errc() && end == text.data() + 5 ? value : -1;
}

class Checker {
 public:
  Checker(ModelFile& model, const std::string& name) : model_(model), name_(name) {}

  void check() {
    if (model_.pieces.empty()) fail("has no pieces");
    model_.byte_ids.assign(256, -1);
    for (std::size_t id = 0; id < model_.pieces.size(); ++id) check_piece(id);
    if (model_.unknown_id < 0) fail("has no piece for what is unknown");
    if (model_.unknown_surface.size() >= kMaxPieceBytes) fail("shows what is unknown as a text that is too long");
    const auto missing = std::ranges::find(model_.byte_ids, -1);
    if (model_.byte_fallback && missing != model_.byte_ids.end())
      fail("lacks the piece for byte " + std::to_string(missing - model_.byte_ids.begin()));
  }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::kCorrupt, name_ + ": " + problem + "; copy tokenizer.model again");
  }

  void check_piece(std::size_t id) {
    const Piece& piece = model_.pieces[id];
    const std::string which = "piece " + std::to_string(id);
    if (piece.text.empty() || piece.text.size() >= kMaxPieceBytes) fail(which + " is empty or too long");
    if (!std::isfinite(piece.score)) fail(which + " has a score that is no finite number");
    if (!seen_.insert(piece.text).second) fail(which + " is spelled as an earlier one");
    if (piece.type == PieceType::kUnknown) {
      if (model_.unknown_id >= 0) fail(which + " is a second one for what is unknown");
      model_.unknown_id = static_cast<std::int64_t>(id);
    }
    if (piece.type != PieceType::kByte) return;
    const int byte = byte_of(piece.text);
    if (byte < 0) fail(which + " is spelled as no byte");
    model_.byte_ids[static_cast<std::size_t>(byte)] = static_cast<std::int32_t>(id);
  }

  ModelFile& model_;
  const std::string& name_;
  std::unordered_set<std::string_view> seen_;
};

std::uint64_t parse_fields(std::string_view bytes, ModelFile& model) {
  std::uint64_t type = 1;
  Fields fields(bytes);
  for (Field field; fields.next(field);) {
    if (field.number == 1) model.pieces.push_back(parse_piece(field.bytes));
    if (field.number == 2) parse_trainer(field.bytes, model, type);
    if (field.number == 3) parse_normalizer(field.bytes, model.normalizer);
    if (field.number == 5) {
      if (!model.denormalizer) model.denormalizer.emplace();
      parse_normalizer(field.bytes, *model.denormalizer);
    }
  }
  return type;
}

}  // namespace

ModelFile parse_model(std::string_view bytes, const std::string& name) {
  ModelFile model;
  std::uint64_t type = 0;
  try {
    type = parse_fields(bytes, model);
  } catch (const NotAModel&) {
    throw Error(ErrorCode::kCorrupt, name + ": is not a SentencePiece model; copy tokenizer.model again");
  }
  Checker(model, name).check();
  if (type == 3 || type == 4)
    throw Error(ErrorCode::kUnsupported, name + ": is a SentencePiece model of " +
                                             (type == 3 ? "words" : "characters") + "; BPE and unigram ones are read");
  model.type = type == 2 ? ModelType::kBpe : ModelType::kUnigram;
  return model;
}

}  // namespace halfbyte::models::sentencepiece
