#include <array>

#include "tests/fuzz/target.h"

namespace halfbyte::fuzz {
namespace {

// A method of packing, or a format, has a row and a corpus of its own even where the code that reads it is the same.
constexpr auto kTargets = std::to_array<Target>({
    {"safetensors", fuzz_safetensors},
    {"index", fuzz_index},
    {"manifest", fuzz_manifest},
    {"packed", fuzz_checkpoint},
    {"config", fuzz_config},
    {"journal", fuzz_journal},
    {"options", fuzz_options},
    {"gguf", fuzz_gguf},
    {"pickle", fuzz_pickle},
    {"zip", fuzz_zip},
    {"pytorch", fuzz_checkpoint},
    {"meta_params", fuzz_meta_params},
    {"meta", fuzz_checkpoint},
    {"llama2c", fuzz_llama2c},
    {"llama2c_tokenizer", fuzz_llama2c_tokenizer},
    {"gptq", fuzz_checkpoint},
    {"awq", fuzz_checkpoint},
    {"hqq", fuzz_checkpoint},
    {"compressed_tensors", fuzz_checkpoint},
    {"bitsandbytes", fuzz_checkpoint},
    {"float4", fuzz_checkpoint},
    {"ipex_llm", fuzz_checkpoint},
    {"sentencepiece", fuzz_sentencepiece},
    {"tokenizer_json", fuzz_tokenizer_json},
    {"tokenizer_files", fuzz_tokenizer_files},
    {"chat_text", fuzz_chat_text},
    {"chat_jinja", fuzz_chat_jinja},
    {"chat_files", fuzz_chat_files},
    {"schema", fuzz_schema},
    {"conversion", fuzz_conversion},
    {"resume", fuzz_resume},
});

}  // namespace

std::span<const Target> targets() noexcept { return kTargets; }

}  // namespace halfbyte::fuzz
