// The prompts of `generate`: texts, files, token ids and conversations, as the command line has them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <halfbyte/generate.h>

#include "models/tokenizers/tokenizer.h"
#include "tools/text/chat_options.h"

namespace halfbyte::cli {

struct PromptWords {
  std::vector<std::string> texts;  // "-" is standard input
  std::vector<std::string> files;
  std::vector<std::string> tokens;
  std::vector<std::string> messages;
  bool is_chat = false;
  ChatWords chat;
};

void declare_prompts(OptionParser& parser, PromptWords& words);

std::size_t prompt_count(const PromptWords& words) noexcept;

// Refuses what does not go together. Errors: UsageError.
void check_prompts(const PromptWords& words);

// Whether standard input is one of them, which is read once.
bool reads_input(const PromptWords& words);

// Puts the texts of standard input and of files in the place of their names. Errors: those of read_input().
void read_prompts(PromptWords& words);

// Each prompt's tokens: texts in the order given, those of files after them, conversations, token ids. `chat` and
// `tokenizer` may be null. `checkpoint`: for errors.
std::vector<TokenIds> encode_prompts(const PromptWords& words, const std::string& checkpoint,
                                     const models::Tokenizer* tokenizer, const models::ChatTemplate* chat);

}  // namespace halfbyte::cli
