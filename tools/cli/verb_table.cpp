// The table of verbs, for --help and for finding the program that has one.
#include "tools/cli/verb.h"

namespace halfbyte::cli {
namespace {

constexpr VerbInfo kVerbs[] = {
    {"quantize", "write a 4-bit (or 8-bit) copy of a checkpoint",
     "  halfbyte quantize llama-bf16 llama-4bit\n"
     "  halfbyte quantize llama-bf16 llama-4bit --group-size 32 --keep 'model.layers.0' --scheme-for "
     "'*down_proj*=sym_int8'\n"
     "  halfbyte quantize llama-bf16 llama-4bit --dry-run\n"
     "  halfbyte quantize llama-bf16 llama-4bit --memory-limit 256MiB --shard-size 2GB --resume",
     Home::kCore},
    {"inspect", "say what a checkpoint holds and what each tensor was before",
     "  halfbyte inspect llama-4bit\n"
     "  halfbyte inspect llama-4bit --tensors\n"
     "  halfbyte inspect llama-4bit --policy half",
     Home::kCore},
    {"verify", "read every byte of a checkpoint and say what is wrong with it",
     "  halfbyte verify llama-4bit\n"
     "  halfbyte verify llama-4bit --against llama-bf16",
     Home::kCore},
    {"dequantize", "write the plain checkpoint back, every tensor in the dtype it had",
     "  halfbyte dequantize llama-4bit llama-again\n"
     "  halfbyte dequantize llama-4bit llama-float32 --dtype float32",
     Home::kCore},
    {"diff", "say which tensors of two checkpoints differ, and by how much",
     "  halfbyte diff llama-bf16 llama-4bit\n"
     "  halfbyte diff llama-4bit llama-again --tensors --exit-code",
     Home::kCore},
    {"export", "write a checkpoint in another program's format",
     "  halfbyte export llama-4bit llama.gguf --to gguf\n"
     "  halfbyte export llama-4bit llama-gptq --to gptq\n"
     "  halfbyte export llama-4bit llama-again --to safetensors",
     Home::kCore},
    {"doctor", "say what this machine is, what of it is used, and what is broken",
     "  halfbyte doctor --json\n"
     "  HALFBYTE_ISA=ref halfbyte doctor",
     Home::kCore},
    {"generate", "continue a prompt",
     "  halfbyte generate llama-4bit --prompt 'Once upon a time' --max-gen-len 64\n"
     "  halfbyte generate llama-4bit --prompt-tokens 1,306,4658 --temperature 0 --json\n"
     "  halfbyte generate llama-4bit --chat --system 'Answer in one word.' --prompt 'What is the capital of Peru?'",
     Home::kModel},
    {"chat", "converse with a model",
     "  halfbyte chat llama-4bit --system 'You are a patient teacher.'\n"
     "  printf 'Hello\\nAnd in French?\\n' | halfbyte chat llama-4bit --temperature 0 --json",
     Home::kModel},
    {"perplexity", "measure a checkpoint on a text, alone or against the original",
     "  halfbyte perplexity llama-4bit --text book.txt --ctx 512\n"
     "  halfbyte perplexity llama-4bit --text book.txt --against llama-bf16\n"
     "  halfbyte perplexity llama-4bit --text book.txt --policies all",
     Home::kModel},
    {"tokenize", "split a text into token ids, or make text of them",
     "  halfbyte tokenize llama-4bit --text 'Once upon a time' --pieces\n"
     "  halfbyte tokenize llama-4bit --file book.txt --count\n"
     "  halfbyte tokenize llama-4bit --decode --text 1,9038,2501,263,931",
     Home::kCore},
    {"bench", "measure the speed of prefill and decode",
     "  halfbyte bench llama-4bit --prompt-tokens 512 --gen-tokens 64", Home::kModel},
    {"synth", "write a random-weight checkpoint of a real model's shape, for measuring",
     "  halfbyte synth llama-random --like llama-1.1b --dtype bfloat16", Home::kCore},
};

}  // namespace

std::span<const VerbInfo> verbs() noexcept { return kVerbs; }

}  // namespace halfbyte::cli
