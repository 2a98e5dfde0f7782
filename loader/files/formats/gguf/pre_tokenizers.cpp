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
constexpr std::string_view kSeed =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::array<std::string_view, 2> kBeforeDeepseek3 = {R"(\p{N}{1,3})", "[一-龥\u3040-ゟ゠-ヿ]+"};
constexpr std::string_view kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Source of the names: llama.cpp, src/llama-vocab.cpp and conversion/base.py. Of those that split alike the first is
// written: with "smollm" llama.cpp leaves spaces as they are.
constexpr auto kPreTokenizers = std::to_array<GgufPreTokenizer>({
    {.name = "gpt-2", .pattern = ""},
    {.name = "phi-2", .pattern = ""},
    {.name = "olmo", .pattern = ""},
    {.name = "jina-v2-es", .pattern = ""},
    {.name = "jina-v2-de", .pattern = ""},
    {.name = "exaone4", .pattern = ""},
    {.name = "llama-bpe", .pattern = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "llama3", .pattern = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "llama-v3", .pattern = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "falcon3", .pattern = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "pixtral", .pattern = kLlama3, .ignores_merges = true, .adds_bos = true},
    {.name = "smaug-bpe", .pattern = kLlama3},
    {.name = "dbrx", .pattern = kLlama3},
    {.name = "chatglm-bpe", .pattern = kLlama3},
    {.name = "glm4", .pattern = kLlama3},
    {.name = "qwen2", .pattern = kQwen2, .normalizes_nfc = true},
    {.name = "deepseek-r1-qwen", .pattern = kQwen2, .normalizes_nfc = true},
    {.name = "megrez", .pattern = kQwen2, .normalizes_nfc = true},
    {.name = "stablelm2", .pattern = kQwen2},
    {.name = "hunyuan", .pattern = kQwen2},
    {.name = "seed-coder", .pattern = kSeed},
    {.name = "hunyuan-dense", .pattern = kDeepseek3, .before = kBeforeDeepseek3},
    {.name = "deepseek-v3", .pattern = kDeepseek3, .before = kBeforeDeepseek3},
    {.name = "tekken", .pattern = kTekken, .ignores_merges = true, .adds_bos = true},
    {.name = "gpt-4o", .pattern = kGpt4o},
    {.name = "llama4", .pattern = kGpt4o},
    {.name = "minimax-m2", .pattern = kGpt4o},
    {.name = "smollm", .pattern = "", .splits_digits = true},
    {.name = "command-r", .pattern = "", .splits_digits = true},
    {.name = "starcoder", .pattern = "", .splits_digits = true},
    {.name = "refact", .pattern = "", .splits_digits = true},
    {.name = "codeshell", .pattern = "", .splits_digits = true},
    {.name = "exaone", .pattern = "", .splits_digits = true},
    {.name = "minerva-7b", .pattern = "", .splits_digits = true},
});

}  // namespace

const GgufPreTokenizer* find_pre_tokenizer(std::string_view name) noexcept {
  const auto row = std::ranges::find(kPreTokenizers, name, &GgufPreTokenizer::name);
  return row == kPreTokenizers.end() ? nullptr : &*row;
}

std::span<const GgufPreTokenizer> pre_tokenizers() noexcept { return kPreTokenizers; }

}  // namespace halfbyte::files
