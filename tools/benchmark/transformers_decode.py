#!/usr/bin/env python3
"""Decode and peak memory inside transformers, in turn: halfbyte's kernels, bitsandbytes nf4, compressed-tensors, and the program itself.

    transformers_decode.py HALFBYTE ORIGINAL QUANTISED [--rounds 3] [--threads 2] [--tokens 32] [--avx2]

Run by a Python that has the wheel, transformers, accelerate, bitsandbytes and compressed-tensors. ORIGINAL is what bitsandbytes quantises, QUANTISED what halfbyte made of it
in a scheme that compressed-tensors reads. --avx2: all of them as on a CPU that has no more. Figures are medians; each run is a process of its own.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

PROMPT = 64


# What libraries look at for the CPU that they take themselves to be on.
AVX2 = {"HALFBYTE_ISA": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def measure(way, path, threads, tokens):
    import resource
    import time

    import torch

    torch.set_num_threads(threads)
    import transformers
    from transformers import AutoModelForCausalLM

    empty = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    options = {"dtype": torch.bfloat16}
    if way == "halfbyte":
        import halfbyte.transformers  # noqa: F401
    if way == "bitsandbytes" and "ATEN_CPU_CAPABILITY" in os.environ:
        import bitsandbytes

        for module in [one for name, one in sys.modules.items() if name.startswith("bitsandbytes") and hasattr(one, "has_avx512bf16")]:
            module.has_avx512bf16 = lambda: False
    if way == "bitsandbytes":
        options["quantization_config"] = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    began = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(path, **options)
    loading = time.perf_counter() - began
    after_load = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ids = torch.arange(100, 100 + PROMPT).unsqueeze(0)

    def seconds(count):
        began = time.perf_counter()
        model.generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)
        return time.perf_counter() - began

    seconds(2)
    rates = []
    for _ in range(3):
        first = seconds(1)
        rates.append((tokens - 1) / (seconds(tokens) - first))
    print(json.dumps({"tokens_per_s": statistics.median(rates), "load_s": loading, "empty_mb": empty / 1000, "loaded_mb": after_load / 1000}))


def own(halfbyte, path, threads, tokens):
    words = [halfbyte, "bench", path, "--prompt-tokens", str(PROMPT), "--gen-tokens", str(tokens), "--threads", str(threads), "--json", "-q"]
    found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return {"tokens_per_s": found["decode_tokens_per_s"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("halfbyte")
    parser.add_argument("original")
    parser.add_argument("quantised")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--avx2", action="store_true")
    words = parser.parse_args()
    if words.avx2:
        os.environ.update(AVX2)
    ways = {"halfbyte": words.quantised, "bitsandbytes": words.original, "compressed-tensors": words.quantised}
    found = {way: [] for way in [*ways, "program"]}
    for _ in range(words.rounds):
        for way, path in ways.items():
            command = [sys.executable, "-W", "ignore", __file__, "--measure", way, path, str(words.threads), str(words.tokens)]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                sys.exit(f"{way}: {ran.stderr.strip().splitlines()[-1]}")
            found[way].append(json.loads(ran.stdout.splitlines()[-1]))
        found["program"].append(own(words.halfbyte, words.quantised, words.threads, words.tokens))
    rates = {way: statistics.median(run["tokens_per_s"] for run in runs) for way, runs in found.items()}
    for way, runs in found.items():
        rest = {key: round(statistics.median(run[key] for run in runs), 2) for key in runs[0] if key != "tokens_per_s"}
        print(f"{way:20} {rates[way]:7.1f} tokens/s  {rest}")
    print(", ".join(f"{rates['halfbyte'] / rates[way]:.2f} x {way}" for way in rates if way != "halfbyte"))
    weights = sum(path.stat().st_size for path in pathlib.Path(words.quantised).glob("*.safetensors")) / 1e6
    first = found["halfbyte"][0]
    print(f"peak after loading over packed weights of {weights:.0f} MB: {(first['loaded_mb'] - first['empty_mb']) / weights:.2f}")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--measure":
        measure(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
