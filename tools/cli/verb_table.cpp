// The table of verbs, for --help and for finding the program that has one.
#include "tools/cli/verb.h"

namespace halfbyte::cli {
namespace {

constexpr VerbInfo kVerbs[] = {
    {.name = "quantize",
     .summary = "write a 4-bit (or 8-bit) copy of a checkpoint",
     .examples = "  halfbyte quantize llama-bf16 llama-4bit\n"
                 "  halfbyte quantize llama-bf16 llama-4bit --group-size 32 --keep 'model.layers.0' --scheme-for "
                 "'*down_proj*=sym_int8'\n"
                 "  halfbyte quantize llama-bf16 llama-4bit --dry-run\n"
                 "  halfbyte quantize llama-bf16 llama-4bit --memory-limit 256MiB --shard-size 2GB --resume",
     .home = Home::kCore,
     .waits_asleep = true},
    {.name = "inspect",
     .summary = "say what a checkpoint holds and what each tensor was before",
     .examples = "  halfbyte inspect llama-4bit\n"
                 "  halfbyte inspect llama-4bit --tensors\n"
                 "  halfbyte inspect llama-4bit --policy half",
     .home = Home::kCore},
    {.name = "verify",
     .summary = "read every byte of a checkpoint and say what is wrong with it",
     .examples = "  halfbyte verify llama-4bit\n"
                 "  halfbyte verify llama-4bit --against llama-bf16",
     .home = Home::kCore},
    {.name = "dequantize",
     .summary = "write the plain checkpoint back, every tensor in the dtype it had",
     .examples = "  halfbyte dequantize llama-4bit llama-again\n"
                 "  halfbyte dequantize llama-4bit llama-float32 --dtype float32",
     .home = Home::kCore},
    {.name = "diff",
     .summary = "say which tensors of two checkpoints differ, and by how much",
     .examples = "  halfbyte diff llama-bf16 llama-4bit\n"
                 "  halfbyte diff llama-4bit llama-again --tensors --exit-code",
     .home = Home::kCore},
    {.name = "export",
     .summary = "write a checkpoint in another program's format",
     .examples = "  halfbyte export llama-4bit llama.gguf --to gguf\n"
                 "  halfbyte export llama-4bit llama-gptq --to gptq\n"
                 "  halfbyte export llama-4bit llama-again --to safetensors",
     .home = Home::kCore},
    {.name = "doctor",
     .summary = "say what this machine is, what of it is used, and what is broken",
     .examples = "  halfbyte doctor --json\n"
                 "  HALFBYTE_ISA=ref halfbyte doctor",
     .home = Home::kCore},
    {.name = "generate",
     .summary = "continue a prompt",
     .examples =
         "  halfbyte generate llama-4bit --prompt 'Once upon a time' --max-gen-len 64\n"
         "  halfbyte generate llama-4bit --prompt-tokens 1,306,4658 --temperature 0 --json\n"
         "  halfbyte generate llama-4bit --chat --system 'Answer in one word.' --prompt 'What is the capital of Peru?'",
     .home = Home::kCore},
    {.name = "chat",
     .summary = "converse with a model",
     .examples = "  halfbyte chat llama-4bit --system 'You are a patient teacher.'\n"
                 "  printf 'Hello\\nAnd in French?\\n' | halfbyte chat llama-4bit --temperature 0 --json",
     .home = Home::kModel},
    {.name = "serve",
     .summary = "answer OpenAI's clients over HTTP",
     .examples = "  halfbyte serve llama-4bit\n"
                 "  halfbyte serve llama-4bit --port 0 --parallel 4 --ctx-size 8192 --kv int8\n"
                 "  halfbyte serve llama-4bit --host 0.0.0.0 --api-key-file keys.txt",
     .home = Home::kModel},
    {.name = "perplexity",
     .summary = "measure a checkpoint on a text, alone or against the original",
     .examples = "  halfbyte perplexity llama-4bit --text book.txt --ctx 512\n"
                 "  halfbyte perplexity llama-4bit --text book.txt --against llama-bf16\n"
                 "  halfbyte perplexity llama-4bit --text book.txt --policies all",
     .home = Home::kModel,
     .waits_asleep = true},
    {.name = "evaluate",
     .summary = "measure what a checkpoint lost of the original, with intervals",
     .examples =
         "  halfbyte evaluate llama-4bit --against llama-bf16 --text book.txt\n"
         "  halfbyte evaluate llama-4bit --against llama-bf16 --text book.txt --windows 160 --json\n"
         "  halfbyte evaluate llama-4bit --against llama-bf16 --text book.txt --dtype amp:bfloat16 --compute auto",
     .home = Home::kModel,
     .waits_asleep = true},
    {.name = "finetune",
     .summary = "train low-rank adapters of a checkpoint on a text",
     .examples = "  halfbyte finetune llama-4bit book-adapter --text book.txt --steps 200\n"
                 "  halfbyte generate llama-4bit --adapter book-adapter --prompt 'Once upon a time'",
     .home = Home::kModel,
     .waits_asleep = true},
    {.name = "merge",
     .summary = "make adapters part of a checkpoint's weights",
     .examples = "  halfbyte merge llama-4bit book-adapter llama-book\n"
                 "  halfbyte merge llama-4bit book-adapter llama-book-bf16 --dequantize\n"
                 "  halfbyte merge llama-4bit book-adapter:0.7 llama-both --adapter style-adapter:0.3",
     .home = Home::kCore},
    {.name = "tokenize",
     .summary = "split a text into token ids, or make text of them",
     .examples = "  halfbyte tokenize llama-4bit --text 'Once upon a time' --pieces\n"
                 "  halfbyte tokenize llama-4bit --file book.txt --count\n"
                 "  halfbyte tokenize llama-4bit --decode --text 1,9038,2501,263,931",
     .home = Home::kCore},
    {.name = "bench",
     .summary = "measure the speed of prefill and decode",
     .examples = "  halfbyte bench llama-4bit --prompt-tokens 512 --gen-tokens 64",
     .home = Home::kModel},
    {.name = "launch",
     .summary = "run a command by several processes or machines, a part of the work each",
     .examples =
         "  halfbyte launch -n 2 -- generate llama-4bit --prompt 'Once upon a time'\n"
         "  halfbyte launch -n 2 -- perplexity llama-4bit --text book.txt\n"
         "  halfbyte launch -n 2 -- serve llama-4bit\n"
         "  halfbyte launch -n 2 -- finetune llama-4bit book-adapter --text book.txt\n"
         "  halfbyte launch -n 2 --nnodes 2 --node-rank 0 --master-addr 10.0.0.5 --interface eth1 -- bench llama-4bit",
     .home = Home::kCore},
    {.name = "synth",
     .summary = "write a random-weight checkpoint of a real model's shape, for measuring",
     .examples = "  halfbyte synth llama-random --like llama-1.1b --dtype bfloat16",
     .home = Home::kCore},
    {.name = "completion",
     .summary = "print what completes this command line in a shell",
     .examples = "  halfbyte completion bash > ~/.local/share/bash-completion/completions/halfbyte\n"
                 "  halfbyte completion zsh > ~/.zfunc/_halfbyte\n"
                 "  halfbyte completion fish > ~/.config/fish/completions/halfbyte.fish",
     .home = Home::kCore},
    {.name = "man",
     .summary = "print the manual page, of all verbs and options",
     .examples = "  halfbyte man | man -l -",
     .home = Home::kCore},
};

}  // namespace

std::span<const VerbInfo> verbs() noexcept { return kVerbs; }

}  // namespace halfbyte::cli
