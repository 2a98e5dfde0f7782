#include "models/tokenizers/sentencepiece/shim.h"

#include <string>
#include <string_view>
#include <vector>

#include <sentencepiece_processor.h>

struct HalfbyteSentencePieceModel {
  sentencepiece::SentencePieceProcessor processor;
};

namespace {

HalfbyteSentencePieceModel* open(const char* bytes, size_t size) try {
  auto* model = new HalfbyteSentencePieceModel;
  if (model->processor.LoadFromSerializedProto({bytes, size}).ok()) return model;
  delete model;
  return nullptr;
} catch (...) {
  return nullptr;
}

void close(HalfbyteSentencePieceModel* model) { delete model; }
int64_t vocab_size(const HalfbyteSentencePieceModel* model) { return model->processor.GetPieceSize(); }
int64_t bos(const HalfbyteSentencePieceModel* model) { return model->processor.bos_id(); }

int64_t id_of(const HalfbyteSentencePieceModel* model, const char* piece, size_t size) {
  const int id = model->processor.PieceToId({piece, size});
  return model->processor.IdToPiece(id) == std::string_view(piece, size) ? id : -1;
}

int piece(const HalfbyteSentencePieceModel* model, int64_t id, HalfbyteEmitText* emit, void* context) {
  const std::string& text = model->processor.IdToPiece(static_cast<int>(id));
  emit(context, text.data(), text.size());
  return 0;
}

int is_control(const HalfbyteSentencePieceModel* model, int64_t id) {
  return model->processor.IsControl(static_cast<int>(id)) ? 1 : 0;
}

int encode(const HalfbyteSentencePieceModel* model, const char* text, size_t size, HalfbyteEmitToken* emit,
           void* context) try {
  const auto encoded = model->processor.EncodeAsImmutableProto({text, size});
  for (const auto& piece : encoded.pieces()) emit(context, piece.id(), piece.begin(), piece.end());
  return 0;
} catch (...) {
  return 1;
}

int decode(const HalfbyteSentencePieceModel* model, const int64_t* ids, size_t count, HalfbyteEmitText* emit,
           void* context) try {
  const std::vector<int> narrow(ids, ids + count);
  std::string text;
  if (!model->processor.Decode(narrow, &text).ok()) return 1;
  emit(context, text.data(), text.size());
  return 0;
} catch (...) {
  return 1;
}

constexpr HalfbyteSentencePiece kFunctions = {
    HALFBYTE_SENTENCEPIECE_ABI, open, close, vocab_size, id_of, piece, is_control, bos, encode, decode};

}  // namespace

extern "C" __attribute__((visibility("default"))) const HalfbyteSentencePiece* halfbyte_sentencepiece() {
  return &kFunctions;
}
