// tokenizer.model of a SentencePiece vocabulary, as the protocol buffer that its library reads.
// Source: google/sentencepiece, src/sentencepiece_model.proto.
#include <bit>
#include <unordered_set>

#include "loader/files/formats/gguf/tokenizer.h"

namespace halfbyte::files {
namespace {

using Kind = GgufVocabulary::Kind;

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
GgufVocabulary repaired(const GgufFile& file) {
  GgufVocabulary out = read_gguf_vocabulary(file);
  const auto unknown = special_token(file, "unknown");
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
  if (!has_unknown && !out.tokens.empty()) out.kinds[unknown.value_or(0)] = Kind::kUnknown;
  return out;
}

Message trainer_spec(const GgufFile& file, const GgufVocabulary& vocabulary) {
  constexpr unsigned kBpe = 2;
  Message out;
  out.number(3, kBpe);
  out.number(4, vocabulary.tokens.size());
  out.flag(35, std::ranges::find(vocabulary.kinds, Kind::kByte) != vocabulary.kinds.end());
  struct Special {
    const char* name;
    unsigned id_field, piece_field;
  };
  for (const auto& [name, id_field, piece_field] :
       {Special{"bos", 41, 46}, Special{"eos", 42, 47}, Special{"padding", 43, 48}}) {
    const auto id = special_token(file, name);
    out.number(id_field, id ? *id : static_cast<std::uint64_t>(-1));  // -1: there is none
    if (id) out.text(piece_field, vocabulary.tokens[*id]);
  }
  const auto unknown = std::ranges::find(vocabulary.kinds, Kind::kUnknown) - vocabulary.kinds.begin();
  out.number(40, static_cast<std::uint64_t>(unknown));
  if (unknown < std::ssize(vocabulary.tokens)) out.text(45, vocabulary.tokens[static_cast<std::size_t>(unknown)]);
  return out;
}

Message normalizer_spec(const GgufFile& file) {
  Message out;
  out.text(1, "identity");
  out.flag(3, file.boolean("tokenizer.ggml.add_space_prefix").value_or(true));
  out.flag(4, file.boolean("tokenizer.ggml.remove_extra_whitespaces").value_or(false));
  out.flag(5, true);
  return out;
}

}  // namespace

std::string gguf_sentencepiece_model(const GgufFile& file) {
  const GgufVocabulary vocabulary = repaired(file);
  Message out;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    Message piece;
    piece.text(1, vocabulary.tokens[id]);
    piece.real(2, vocabulary.scores.empty() ? 0.0F : vocabulary.scores[id]);
    piece.number(3, static_cast<std::uint64_t>(vocabulary.kinds[id]));
    out.message(1, piece);
  }
  out.message(2, trainer_spec(file, vocabulary));
  out.message(3, normalizer_spec(file));
  return out.take();
}

}  // namespace halfbyte::files
