// llama2.c's own tokenizer file, which lies beside its checkpoints: tokenizer.bin, or tok512.bin for 512 tokens.
#pragma once

#include <string>
#include <string_view>

#include "loader/files/checkpoint.h"

namespace halfbyte::files {

// Whether a file is called like one.
bool is_llama2c_tokenizer_name(std::string_view name) noexcept;

// Adds tokenizer.model and tokenizer_config.json, made of the file beside the checkpoint, where there is one of
// `vocab_size` tokens; a note where it has another number of them. Errors: kCorrupt naming the file.
void add_llama2c_tokenizer(const fs::path& directory, std::size_t vocab_size, Checkpoint& checkpoint);

}  // namespace halfbyte::files
