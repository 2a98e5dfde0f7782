#include "loader/files/formats/gguf/pre_tokenizers.h"

#include <algorithm>
#include <array>

namespace halfbyte::files {
namespace {

// As the models' own tokenizer.json files spell them.
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Source of the names: llama.cpp, src/llama-vocab.cpp and conversion/base.py.
constexpr auto kPreTokenizers = std::to_array<GgufPreTokenizer>({
    {"gpt-2", ""},
    {"phi-2", ""},
    {"olmo", ""},
    {"jina-v2-es", ""},
    {"jina-v2-de", ""},
    {"exaone4", ""},
    {"llama-bpe", kLlama3, false, false, true, true},
    {"llama3", kLlama3, false, false, true, true},
    {"llama-v3", kLlama3, false, false, true, true},
    {"falcon3", kLlama3, false, false, true, true},
    {"pixtral", kLlama3, false, false, true, true},
    {"smaug-bpe", kLlama3},
    {"dbrx", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"glm4", kLlama3},
    {"qwen2", kQwen2, false, true},
    {"deepseek-r1-qwen", kQwen2, false, true},
    {"megrez", kQwen2, false, true},
    {"stablelm2", kQwen2},
    {"hunyuan", kQwen2},
    {"tekken", kTekken, false, false, true, true},
    {"gpt-4o", kGpt4o},
    {"llama4", kGpt4o},
    {"starcoder", "", true},
    {"refact", "", true},
    {"command-r", "", true},
    {"smollm", "", true},
    {"codeshell", "", true},
    {"exaone", "", true},
    {"minerva-7b", "", true},
});

}  // namespace

const GgufPreTokenizer* find_pre_tokenizer(std::string_view name) noexcept {
  const auto row = std::ranges::find(kPreTokenizers, name, &GgufPreTokenizer::name);
  return row == kPreTokenizers.end() ? nullptr : &*row;
}

std::span<const GgufPreTokenizer> pre_tokenizers() noexcept { return kPreTokenizers; }

}  // namespace halfbyte::files
