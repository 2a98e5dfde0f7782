// What a model is to learn, as sequences of tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include <halfbyte/sequence.h>
#include <halfbyte/text.h>

namespace halfbyte::convert {

struct CorpusOptions {
  std::filesystem::path tokenizer;  // a checkpoint, or a directory with a tokenizer
  std::int64_t vocab_size;          // ids are smaller
  std::int64_t context;             // tokens of a document's piece at most; 2 at least
  bool packs = true;                // several short documents make one sequence
  bool is_json_lines = false;       // whatever the file is called
  std::string chat_template = {};   // of a family, instead of the checkpoint's own
  std::stop_token stop = {};        // asked before each value of the file
};

struct Corpus {
  // Of context - 1 tokens at most, in the file's order; in each something is scored.
  std::vector<training::Sequence> sequences;
  std::int64_t documents = 0;  // that the file has
  std::int64_t scored = 0;     // tokens
  std::string hash;            // xxh3_128 of the file
  std::vector<Text> notes = {};
};

// Reads a text, or JSON as .jsonl or .json: {"text"}, {"prompt", "completion"}, {"messages"}, {"input_ids"} or [ids].
// Errors: kNotFound, kIo; kCorrupt naming a line; kInvalidArgument where nothing is left to learn; kInterrupted; as of
// reading the tokenizer and its template.
Corpus read_corpus(const std::filesystem::path& file, const CorpusOptions& options);

}  // namespace halfbyte::convert
