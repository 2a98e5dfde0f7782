#include "tools/cli/habits.h"

#include <algorithm>

#include "tools/cli/suggest.h"

namespace halfbyte::cli {
namespace {

constexpr std::string_view kModelFirst = "the model is the first word after the verb, without an option";
constexpr std::string_view kFourOrEight =
    "of integers there are 4 and 8 bits: 'sym_int4', 'asym_int4', 'sym_int8' ('halfbyte quantize --help' has all)";
constexpr std::string_view kNotDtype =
    "a dtype is what products are computed in; weights get their bits from 'halfbyte quantize --scheme'";

constexpr Habit kHabits[] = {
    // The model, and what is written.
    {"-m --model --model-path --model-id --model-name --model-name-or-path --pretrained-model-name-or-path "
     "--repo-id-or-model-path --checkpoint --ckpt --path -i --input",
     "CKPT", kModelFirst},
    {"-m --model --model-path --model-id --model-name --model-name-or-path --pretrained-model-name-or-path "
     "--repo-id-or-model-path --checkpoint --ckpt --path -i --in --input --src --source",
     "SRC", kModelFirst},
    {"-m --model --checkpoint -a -b --reference", "A",
     "the two models are the words after the verb, without an option"},
    {"-o --out --output --outfile --output-file --output-dir --output-path --save --save-dir --save-path --dst --dest "
     "--destination",
     "DST", "the result is the second word after the verb, without an option"},
    {"-hf -hfr --hf-repo --hf-file --hf-token --cache-dir --token --revision --local-files-only -mu --model-url --url "
     "--download",
     "--json", "nothing is downloaded here: get the model first (hf download ORG/MODEL)"},
    {"--trust-remote-code", "--json", "no code of a model is ever run here, so nothing need be trusted"},
    // generate, chat
    {"-p --text --question --query --message --user --user-prompt", "--prompt"},
    {"-f --file --prompt-file --in-file", "--prompt-file"},
    {"-n --n-predict --predict --num-predict --max-new-tokens --max-tokens --max-length --max-gen-tokens --n-tokens "
     "--num-tokens --max-gen-toks --length",
     "--max-gen-len"},
    {"-c --ctx --ctx-size --n-ctx --context --context-length --context-size --max-context", "--max-gen-len",
     "the context is the model's own; --max-gen-len says how much is added"},
    {"--temp -t --temperatur", "--temperature"},
    {"--do-sample --greedy --no-sample --sampling", "--temperature", "--temperature 0 is greedy, above 0 it samples"},
    {"--num-beams --beams --beam-size", "--temperature", "there is no beam search; --temperature 0 is greedy"},
    {"--repeat-penalty --presence-penalty --frequency-penalty --penalty", "--repetition-penalty"},
    {"-r --reverse-prompt --stop-string --stop-strings --stop-sequence --stop-sequences --stop-words", "--stop"},
    {"-r --reverse-prompt --stop --eos-token-id --eos", "--stop-token", "--stop-token takes a token id"},
    {"-cnv --conversation --interactive --instruct -i -ins", "--chat",
     "'halfbyte chat' converses; --chat puts one prompt into the model's template"},
    {"--no-conversation -no-cnv --no-display-prompt --no-echo --stream --streaming --color --log-disable --simple-io",
     "--echo", "so it is here: text alone on stdout, as it grows; the prompt only with --echo, no log with -q"},
    {"-sys --system-prompt --system-message --system-file", "--system"},
    {"--jinja --template --chat-template-file --prompt-template --conv-template", "--chat-template"},
    {"--prompt-cache-all --prompt-cache-file --session", "--prompt-cache",
     "of a chat all is kept, of generate the prompt"},
    {"-s --random-seed --manual-seed --rng-seed", "--seed"},
    {"-no-mmap --no-mmap --mlock --low-cpu-mem-usage --cpu-embedding --optimize-model --use-cache --flash-attn -fa "
     "--kv-cache-type "
     "--cache-type-k --cache-type-v -ctk -ctv --numa",
     "--device", "there is nothing to set for it: weights are mapped, the cache is kept, attention is fused"},
    // serve
    {"-c --ctx --n-ctx --context --context-length --context-size --max-context --max-model-len --max-seq-len",
     "--ctx-size"},
    {"-np --n-parallel --max-num-seqs --slots --num-parallel --max-batch-size", "--parallel"},
    {"--api-key --key", "--api-key-file",
     "a key in a command line is seen by everybody; keys come from a file, or HALFBYTE_API_KEY"},
    {"-a --alias --served-model-name", "--name"},
    {"--listen --bind --address --server-name", "--host"},
    {"-to --read-timeout --request-timeout", "--timeout"},
    {"-cb --cont-batching --continuous-batching --cache-prompt --enable-prefix-caching --metrics --embeddings "
     "--embedding --jinja "
     "--slots --enable-auto-tool-choice --reasoning-format",
     "--parallel", "there is nothing to turn on: 'halfbyte serve' does it"},
    // What runs it
    {"-t -tb -j --n-threads --num-threads --nthreads --nthread --thread --threads-batch --jobs --workers --cpu-threads",
     "--threads"},
    {"-ngl -dev --ngl --n-gpu-layers --gpu-layers --gpu --gpus --cuda --cpu --xpu --use-gpu --use-cuda --device-map "
     "--main-gpu",
     "--device"},
    {"--torch-dtype --data-type --precision --type --fp16 --bf16 --fp32 --half --float16 --bfloat16 --compute-dtype "
     "--bnb-4bit-compute-dtype --outtype --out-type",
     "--dtype"},
    {"--load-in-4bit --load-in-8bit --load-in-low-bit --low-bit --bits --scheme --quantize --quantization --qtype",
     "--dtype-for", "'halfbyte quantize' writes a 4-bit copy once; every verb then runs that"},
    // perplexity, tokenize, bench
    {"-f --file --text-file --input-file --in-file --prompt --prompts", "--file"},
    {"-f --file --text-file --input-file --in-file --input --dataset --data --corpus --prompt -p", "--text"},
    {"--string --sentence", "--text"},
    {"-c --ctx-size --n-ctx --context --context-length --context-size --window --max-length --seqlen --stride",
     "--ctx"},
    {"--max-chunks --n-chunks --limit --num-samples --nsamples", "--chunks"},
    {"--kl-divergence --kl-divergence-base --reference --original --base --base-model --compare", "--against"},
    {"--no-bos --add-bos --no-add-special --add-special-tokens --skip-special-tokens", "--no-special"},
    {"--show-count --length -n", "--count"},
    {"--ids --detokenize", "--decode"},
    {"-b --batch-size --n-batch --bs -ub", "--batch"},
    {"-n -tg --n-gen --gen --n-predict --max-new-tokens --output-len --out-tokens --max-gen-len", "--gen-tokens"},
    {"-p -pp --n-prompt --input-len --prompt-len --in-tokens --prompt", "--prompt-tokens"},
    {"-d --n-depth", "--depth"},
    {"-r --repetitions --repeat --reps --n-runs --iterations --num-trials --trials --warmup", "--runs"},
    // quantize, dequantize, export, synth
    {"-s --quant --quant-type --quant-scheme --quantization --quantize --type --ftype --bits --w-bit --wbits -w "
     "--method "
     "--format --dtype --outtype --out-type --low-bit --qtype --sym --asym --nf4 --fp4 --int4",
     "--scheme"},
    {"--load-in-4bit --load-in-low-bit", "--scheme", "4 bits are what it writes unless told; --scheme says how"},
    {"--load-in-8bit --int8", "--scheme", "--scheme sym_int8 has 8 bits"},
    {"-g --group --q-group-size --block-size --blocksize --blockwise", "--group-size"},
    {"--exclude --ignore --skip --modules-to-not-convert --llm-int8-skip-modules --exclude-weights --no-quantize "
     "--leave-output-tensor",
     "--keep"},
    {"--tensor-type --override --overrides --mixed --layer-bits --output-tensor-type --token-embedding-type",
     "--scheme-for"},
    {"--double-quant --use-double-quant --bnb-4bit-use-double-quant --compress-statistics", "--nested-scales"},
    {"--imatrix --calib --calib-data --calib-dataset --calibration --dataset --desc-act --act-order --damp-percent",
     "--search", "no text is needed to quantise here; --search says how scales are chosen"},
    {"-f -y --force --yes --clobber --replace --allow-overwrite --overwrite-output", "--overwrite"},
    {"--continue --restart-from --keep-going", "--resume"},
    {"-n --simulate --plan --no-write --estimate", "--dry-run"},
    {"--ram --max-memory --max-ram --mem --memory --memory-budget", "--memory-limit"},
    {"--max-shard-size --split --split-max-size --split-max-tensors", "--shard-size"},
    {"--outtype --out-type --ftype --scheme --quant --qtype", "--type"},
    {"-t -f --format --target --output-format --out-format --method --type-to", "--to"},
    {"--allow-requantize --lossy", "--requantize"},
    {"--model --shape --size --config", "--like"},
    {"-l -a --list --all --full --layers --show-tensors --list-tensors", "--tensors"},
    {"--check --strict --hash --checksum", "--verify"},
    // Every verb
    {"--output-json --format-json --as-json -j", "--json"},
    {"--silent --no-progress --log-disable --disable-progress", "--quiet"},
    {"--debug --log-level --loglevel --trace -vv --log-verbosity", "--verbose"},
    {"-? -help /? /h", "--help"},
    // Schemes
    {"int4 4bit 4-bit 4bits 4 q4 w4 i4 s4 w4a16 int4_sym int4-sym symmetric sym gptq woq_int4 4bit_sym", "sym_int4"},
    {"q4_0 q4_0_4_4 q4_0_4_8 q4_0_8_8", "sym_int4", "here it is 'sym_int4' with --group-size 32"},
    {"q4_1 q4_k q4_k_m q4_k_s", "asym_int4", "nearest to it here is 'asym_int4' with --group-size 32"},
    {"u4 uint4 int4_asym int4-asym asymmetric asym awq zero_point", "asym_int4"},
    {"iq4 iq4_xs", "iq4_nl"},
    {"int8 8bit 8-bit 8bits 8 q8 q8_0 w8 i8 w8a16 w8a8 fp8 llm.int8 sym_int8_channel", "sym_int8"},
    {"mxfp4 nvfp4 e2m1 fp4-e2m1 float4_e2m1", "fp4_e2m1"},
    {"bnb bitsandbytes normalfloat4 nf4_bnb qlora", "nf4"},
    {"int2 int3 int5 int6 2bit 3bit 5bit 6bit 2 3 5 6 q2 q3 q5 q6 q2_k q3_k q3_k_s q3_k_m q3_k_l q5_0 q5_1 q5_k q5_k_s "
     "q5_k_m q6_k nf3 fp6 asym_int5 sym_int5 fp6_k q2_k_s iq2_xxs iq2_xs iq3_xxs",
     "sym_int4", kFourOrEight},
    {"f16 bf16 f32 fp16 fp32 float16 bfloat16 float32 none", "sym_int4",
     "'halfbyte dequantize --dtype' writes a checkpoint in one dtype, --keep leaves some tensors as they are"},
    {"-1 0 per-channel per_channel channelwise row per-row none", "channel"},
    {"256 512 1024", "128"},
    // Dtypes and policies
    {"fp16 f16 torch.float16 torch.half fp-16", "float16"},
    {"half", "float16"},
    {"bf16 torch.bfloat16 brain bfloat", "bfloat16"},
    {"fp32 f32 float torch.float32 torch.float full single", "float32"},
    {"auto stored native keep", "original"},
    {"auto original stored native keep", "recorded"},
    {"mixed autocast amp:bf16", "amp:bfloat16"},
    {"amp:fp16 amp:f16 amp:half", "amp:float16"},
    {"int4 int8 4bit 8bit sym_int4 asym_int4 sym_int8 nf4 fp4 q4_0 q8_0", "amp:bfloat16", kNotDtype},
    {"int4 int8 4bit 8bit sym_int4 asym_int4 sym_int8 nf4 fp4 q4_0 q8_0", "float16", kNotDtype},
    {"fp32 bf16 float32 bfloat16 fp16 float16", "float"},
    // Formats
    {"ggml llama.cpp llama-cpp llamacpp llama_cpp ollama", "gguf"},
    {"hf huggingface transformers pytorch safetensor torch bin", "safetensors"},
    {"bnb qlora", "bitsandbytes"},
    {"autogptq auto-gptq auto_gptq gptqmodel exllama", "gptq"},
    {"autoawq auto-awq", "awq"},
    {"vllm ct llm-compressor llmcompressor compressed", "compressed-tensors"},
    {"q4_k q4_k_m q4_k_s q5_0 q5_k_m q6_k", "Q4_1", "K-quants are not written; nearest to it is 'Q4_1'"},
    {"fp16 float16 half", "F16"},
    {"bfloat16", "BF16"},
    {"fp32 float32 float", "F32"},
    {"int8 q8 8bit", "Q8_0"},
    {"int4 q4 4bit", "Q4_0"},
    {"gpu nvidia", "cuda"},
    {"intel igpu dgpu arc", "xpu"},
    {"metal apple m1", "mps"},
    // Verbs
    {"convert quant compress llama-quantize convert_hf_to_gguf.py convert-hf-to-gguf save_low_bit 4bit", "quantize"},
    {"run infer inference predict complete cli llama-cli llama-run main simple", "generate"},
    {"server api api-server llama-server http", "serve"},
    {"repl talk converse conversation interactive", "chat"},
    {"ppl llama-perplexity measure", "perplexity"},
    {"eval kld lm-eval lm_eval accuracy", "evaluate"},
    {"info show ls list stat dump view describe gguf-dump tensors plan", "inspect"},
    {"check validate fsck checksum hash integrity", "verify"},
    {"compare cmp", "diff"},
    {"dequant unquantize decompress restore expand upcast", "dequantize"},
    {"benchmark llama-bench speed perf time", "bench"},
    {"env system sysinfo diagnose diagnostics devices gpus health", "doctor"},
    {"encode decode tokens tokeniser tokenizer detokenize llama-tokenize", "tokenize"},
    {"convert-to to save", "export"},
    {"random dummy fake init", "synth"},
    {"pull download get fetch", "quantize",
     "nothing is downloaded here: get the model first (hf download ORG/MODEL), then quantize it"},
    {"completions complete-shell autocomplete", "completion"},
    {"manual manpage manual-page", "man"},
    {"-V -version version -ver", "--version"},
};

struct ArgumentRow {
  std::string_view here;
  std::string_view hint;
};

// Of words without an option, by what the verb has: the first row that counts.
constexpr ArgumentRow kArguments[] = {
    {"--prompt", "a prompt is given with --prompt, in quotes"},
    {"--gen-tokens", "one model is measured at a time"},
    {"--against", "the original is given with --against"},
    {"--scheme", "SRC and DST come without an option; a scheme is given with --scheme"},
    {"--to", "a format is given with --to"},
    {"--policy", "'halfbyte diff A B' compares two models"},
    {"--system", "what is said to the model comes on standard input"},
    {"--decode", "a text is given with --text, in quotes"},
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// "--max_new_tokens" and "--Max-New-Tokens" are the same habit; "-M" and "-m" are not.
bool is_word(std::string_view typed, std::string_view word) {
  const bool is_short_option = word.size() == 2 && word[0] == '-';
  const auto same = [&](char a, char b) { return is_short_option ? a == b : lower(a) == b || (a == '_' && b == '-'); };
  return std::ranges::equal(typed, word, same);
}

bool has_word(std::string_view words, std::string_view typed) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (is_word(typed, words.substr(0, end))) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

bool is_known(std::span<const std::string> known, std::string_view word) {
  return std::ranges::find(known, word) != known.end();
}

std::string habit(std::string_view typed, std::span<const std::string> known) {
  for (const Habit& row : kHabits) {
    if (!has_word(row.words, typed) || !is_known(known, row.here)) continue;
    return row.hint.empty() ? "; here it is '" + std::string(row.here) + "'" : "; " + std::string(row.hint);
  }
  return "";
}

}  // namespace

std::string hint(std::string_view typed, std::span<const std::string> known) {
  std::string found = habit(typed, known);
  // "-n32"
  const bool has_glued_value =
      typed.size() > 2 && typed[0] == '-' && typed[1] != '-' && typed[2] >= '0' && typed[2] <= '9';
  if (found.empty() && has_glued_value) found = habit(typed.substr(0, 2), known);
  return found.empty() ? did_you_mean(typed, known) : found;
}

std::string argument_hint(std::span<const std::string> known) {
  for (const ArgumentRow& row : kArguments) {
    if (is_known(known, row.here)) return "; " + std::string(row.hint);
  }
  return "";
}

std::span<const Habit> habits() noexcept { return kHabits; }

}  // namespace halfbyte::cli
