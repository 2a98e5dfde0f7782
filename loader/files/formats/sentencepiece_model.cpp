// Source: google/sentencepiece, src/sentencepiece_model.proto.
#include "loader/files/formats/sentencepiece_model.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace halfbyte::files {
namespace {

using Kind = PieceVocabulary::Kind;

// A protocol buffer's message, field by field.
class Message {
 public:
  void number(unsigned field, std::uint64_t value) {
    tag(field, 0);
    varint(value);
  }
  void flag(unsigned field, bool value) { number(field, value ? 1 : 0); }
  void real(unsigned field, float value) {
    tag(field, 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int i = 0; i < 4; ++i) bytes_ += static_cast<char>(bits >> (8 * i) & 255);
  }
  void text(unsigned field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(unsigned field, const Message& value) { text(field, value.bytes_); }
  std::string take() { return std::move(bytes_); }

 private:
  void tag(unsigned field, unsigned type) { varint(field << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value % 128 + 128);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// A piece must be there, once, and one of them must be the unknown one.
void repair(PieceVocabulary& out, const PieceRules& rules) {
  std::unordered_set<std::string> seen;
  bool has_unknown = false;
  for (std::size_t id = 0; id < out.tokens.size(); ++id) {
    if (out.tokens[id].empty() || !seen.insert(out.tokens[id]).second) {
      out.tokens[id] = "[UNUSED" + std::to_string(id) + "]";
      out.kinds[id] = Kind::kUnused;
      seen.insert(out.tokens[id]);
    }
    if (out.kinds[id] == Kind::kUnknown && has_unknown) out.kinds[id] = Kind::kControl;
    has_unknown = has_unknown || out.kinds[id] == Kind::kUnknown;
  }
  if (!has_unknown && !out.tokens.empty()) out.kinds[rules.unknown.value_or(0)] = Kind::kUnknown;
}

Message trainer_spec(const PieceVocabulary& vocabulary, const PieceRules& rules) {
  constexpr unsigned kBpe = 2;
  Message out;
  out.number(3, kBpe);
  out.number(4, vocabulary.tokens.size());
  out.flag(35, std::ranges::find(vocabulary.kinds, Kind::kByte) != vocabulary.kinds.end());
  struct Special {
    std::optional<std::size_t> id;
    unsigned id_field, piece_field;
  };
  for (const auto& [id, id_field, piece_field] :
       {Special{rules.bos, 41, 46}, Special{rules.eos, 42, 47}, Special{rules.padding, 43, 48}}) {
    out.number(id_field, id ? *id : static_cast<std::uint64_t>(-1));  // -1: there is none
    if (id) out.text(piece_field, vocabulary.tokens[*id]);
  }
  const auto unknown = std::ranges::find(vocabulary.kinds, Kind::kUnknown) - vocabulary.kinds.begin();
  out.number(40, static_cast<std::uint64_t>(unknown));
  if (unknown < std::ssize(vocabulary.tokens)) out.text(45, vocabulary.tokens[static_cast<std::size_t>(unknown)]);
  return out;
}

Message normalizer_spec(const PieceRules& rules) {
  Message out;
  out.text(1, "identity");
  out.flag(3, rules.adds_space_prefix);
  out.flag(4, rules.removes_extra_spaces);
  out.flag(5, true);
  return out;
}

}  // namespace

std::string sentencepiece_model(PieceVocabulary vocabulary, const PieceRules& rules) {
  repair(vocabulary, rules);
  Message out;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    Message piece;
    piece.text(1, vocabulary.tokens[id]);
    piece.real(2, vocabulary.scores.empty() ? 0.0F : vocabulary.scores[id]);
    piece.number(3, static_cast<std::uint64_t>(vocabulary.kinds[id]));
    out.message(1, piece);
  }
  out.message(2, trainer_spec(vocabulary, rules));
  out.message(3, normalizer_spec(rules));
  return out.take();
}

}  // namespace halfbyte::files
