// The tokenizer of a GGUF file as the files that it was made from: tokenizer.json (byte-level BPE) or tokenizer.model
// (SentencePiece), tokenizer_config.json and generation_config.json.
#pragma once

#include <memory>

#include "loader/files/checkpoint.h"
#include "loader/files/formats/gguf/file.h"
#include "loader/files/formats/sentencepiece_model.h"

namespace halfbyte::files {

// Adds the files, whose text is made when they are read, and notes on what is not known. `file` has the metadata.
void add_gguf_tokenizer(const std::shared_ptr<const GgufFile>& file, Checkpoint& checkpoint);

// A vocabulary as the metadata list it. Errors: kCorrupt when the lists are not of one length.
using GgufVocabulary = PieceVocabulary;
GgufVocabulary read_gguf_vocabulary(const GgufFile& file);

// Of the metadata, an id within the vocabulary, or nothing. `name`: "bos"
std::optional<std::size_t> special_token(const GgufFile& file, const std::string& name);

std::string gguf_tokenizer_json(const GgufFile& file);
std::string gguf_sentencepiece_model(const GgufFile& file);

}  // namespace halfbyte::files
