// The C interface of libhalfbyte_sentencepiece: what halfbyte asks of SentencePiece. Included by the library (shim.cpp)
// and by the side that opens it (tokenizer.cpp); knows neither SentencePiece nor the rest of halfbyte.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

// Changes whenever a declaration below does.
#define HALFBYTE_SENTENCEPIECE_ABI 2
#define HALFBYTE_SENTENCEPIECE "halfbyte_sentencepiece"

struct HalfbyteSentencePieceModel;  // reentrant once opened

// Receives results; may be called any number of times. Must not throw.
// begin, end: the bytes of the text that the token stands for.
typedef void HalfbyteEmitToken(void* context, int64_t id, size_t begin, size_t end);
typedef void HalfbyteEmitText(void* context, const char* text, size_t size);

struct HalfbyteSentencePiece {
  int abi;
  // Null: the bytes are no SentencePiece model.
  HalfbyteSentencePieceModel* (*open)(const char* bytes, size_t size);
  void (*close)(HalfbyteSentencePieceModel* model);
  int64_t (*vocab_size)(const HalfbyteSentencePieceModel* model);
  // Of a piece spelled exactly so; negative: none. (SentencePiece itself answers with unk.)
  int64_t (*id_of)(const HalfbyteSentencePieceModel* model, const char* piece, size_t size);
  int (*piece)(const HalfbyteSentencePieceModel* model, int64_t id, HalfbyteEmitText* emit, void* context);
  int (*is_control)(const HalfbyteSentencePieceModel* model, int64_t id);
  int64_t (*bos)(const HalfbyteSentencePieceModel* model);  // negative: none
  // 0: done. Ids must be within the vocabulary.
  int (*encode)(const HalfbyteSentencePieceModel* model, const char* text, size_t size, HalfbyteEmitToken* emit,
                void* context);
  int (*decode)(const HalfbyteSentencePieceModel* model, const int64_t* ids, size_t count, HalfbyteEmitText* emit,
                void* context);
};

typedef const HalfbyteSentencePiece* HalfbyteSentencePieceFunction();

}  // extern "C"
