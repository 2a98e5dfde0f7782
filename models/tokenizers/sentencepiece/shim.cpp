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

int encode(const HalfbyteSentencePieceModel* model, const char* text, size_t size, HalfbyteEmitId* emit,
           void* context) try {
  std::vector<int> ids;
  if (!model->processor.Encode({text, size}, &ids).ok()) return 1;
  for (const int id : ids) emit(context, id);
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
    HALFBYTE_SENTENCEPIECE_ABI, open, close, vocab_size, bos, encode, decode};

}  // namespace

extern "C" __attribute__((visibility("default"))) const HalfbyteSentencePiece* halfbyte_sentencepiece() {
  return &kFunctions;
}
