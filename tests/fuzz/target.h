// What is fuzzed: a row for each parser of what strangers send, and for whole conversions. See README.md.
#pragma once

#include <span>
#include <string_view>

namespace halfbyte::fuzz {

struct Target {
  std::string_view name;
  // Reads the input, or refuses it with an Error. Aborts when what was read contradicts itself.
  void (*run)(std::string_view input);
};

std::span<const Target> targets() noexcept;

// Ends the process, which libFuzzer reports with the input, when `holds` is false.
void require(bool holds, const char* what);

// Safetensors headers, pickles, manifests: of bytes in memory.
void fuzz_safetensors(std::string_view input);
void fuzz_manifest(std::string_view input);
void fuzz_pickle(std::string_view input);
void fuzz_config(std::string_view input);
void fuzz_sentencepiece(std::string_view input);
void fuzz_tokenizer_json(std::string_view input);
void fuzz_chat_text(std::string_view input);
void fuzz_chat_jinja(std::string_view input);  // a template, run
void fuzz_options(std::string_view input);
void fuzz_schema(std::string_view input);  // a line of JSON schema, then which bytes to choose

// One file on the disk.
void fuzz_zip(std::string_view input);
void fuzz_gguf(std::string_view input);
void fuzz_llama2c(std::string_view input);
void fuzz_llama2c_tokenizer(std::string_view input);
void fuzz_meta_params(std::string_view input);

// Bundles (bundle.h).
void fuzz_index(std::string_view input);
void fuzz_journal(std::string_view input);
void fuzz_checkpoint(std::string_view input);
void fuzz_tokenizer_files(std::string_view input);
void fuzz_chat_files(std::string_view input);
void fuzz_conversion(std::string_view input);
void fuzz_resume(std::string_view input);

}  // namespace halfbyte::fuzz
