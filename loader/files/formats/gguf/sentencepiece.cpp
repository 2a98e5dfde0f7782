// tokenizer.model of a SentencePiece vocabulary.
#include "loader/files/formats/gguf/tokenizer.h"

namespace halfbyte::files {

std::string gguf_sentencepiece_model(const GgufFile& file) {
  return sentencepiece_model(
      read_gguf_vocabulary(file),
      {.unknown = special_token(file, "unknown"),
       .bos = special_token(file, "bos"),
       .eos = special_token(file, "eos"),
       .padding = special_token(file, "padding"),
       .adds_space_prefix = file.boolean("tokenizer.ggml.add_space_prefix").value_or(true),
       .removes_extra_spaces = file.boolean("tokenizer.ggml.remove_extra_whitespaces").value_or(false)});
}

}  // namespace halfbyte::files
