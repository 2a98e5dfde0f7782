#!/usr/bin/env python3
"""Measures the figures of README.md and prints them as its tables.

    readme_tables.py accuracy HALFBYTE MODEL TEXT     KL divergence of schemes under every dtype policy
    readme_tables.py speed HALFBYTE SCRATCH           convert, prefill, decode of a 1.1 G parameter model (3.7 GB of disk)

HALFBYTE is the program. Nothing else should run on the machine while `speed` measures.
"""
import json
import os
import platform
import subprocess
import sys
import tempfile

POLICIES = ["float32", "amp:bfloat16", "amp:float16", "half", "bfloat16"]
SCHEMES = {
    "sym_int4 g64": [],
    "sym_int4 g32": ["--group-size", "32"],
    "asym_int4 g64": ["--scheme", "asym_int4"],
    "nf4 g64": ["--scheme", "nf4"],
    "nf4 g64, nested scales": ["--scheme", "nf4", "--nested-scales"],
    "fp4 g64": ["--scheme", "fp4"],
    "fp4_e2m1 g32": ["--scheme", "fp4_e2m1", "--group-size", "32", "--halfbyte-only"],
    "sym_int8 g64": ["--scheme", "sym_int8"],
}


def run(program, *words):
    done = subprocess.run([program, *words, "--json", "-q"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr.strip())
    return json.loads(done.stdout)


def row(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0]}, {os.cpu_count()} cores, {platform.system()}"


def accuracy(program, model, text):
    def measure(checkpoint, policy):
        found = run(program, "perplexity", checkpoint, "--text", text, "--ctx", "256", "--chunks", "64", "--dtype", policy,
                    "--against", model)
        return f"{found['kl_mean']:.6f} ({found['perplexity']:.3f})"

    print(f"KL divergence from the original in float32 (perplexity). {machine()}\n")
    row("", *POLICIES)
    row(*["---"] * (len(POLICIES) + 1))
    row("original", *(measure(model, policy) for policy in POLICIES))
    for name, words in SCHEMES.items():
        with tempfile.TemporaryDirectory() as scratch:
            checkpoint = os.path.join(scratch, "checkpoint")
            run(program, "quantize", model, checkpoint, *words)
            row(name, *(measure(checkpoint, policy) for policy in POLICIES))


def speed(program, scratch):
    source = os.path.join(scratch, "llama-1.1b")
    if not os.path.isdir(source):
        run(program, "synth", source, "--like", "llama-1.1b")
    print(f"llama-1.1b, random bfloat16 weights, 512 + 64 tokens, default policy. {machine()}\n")
    row("", "quantize", "size", "prefill", "decode", "peak memory while running")
    row(*["---"] * 6)
    options = {"sym_int4 g64": [], "sym_int4 g128, lm_head sym_int8": ["--group-size", "128", "--scheme-for", "lm_head=sym_int8"]}
    for name, words in options.items():
        checkpoint = os.path.join(scratch, "quantized")
        made = run(program, "quantize", source, checkpoint, "--overwrite", *words)
        found = run(program, "bench", checkpoint, "--prompt-tokens", "512", "--gen-tokens", "64", "--runs", "5")
        row(name, f"{made['seconds']:.1f} s", f"{made['result_bytes'] / 1e9:.2f} GB", f"{found['prefill_tokens_per_s']:.0f} tokens/s",
            f"{found['decode_tokens_per_s']:.1f} tokens/s", f"{found['peak_rss_bytes'] / 1e9:.2f} GB")


if __name__ == "__main__":
    commands = {"accuracy": (accuracy, 3), "speed": (speed, 2)}
    name, words = (sys.argv[1:2] or [""])[0], sys.argv[2:]
    if name not in commands or len(words) != commands[name][1]:
        sys.exit(__doc__.strip())
    commands[name][0](*words)
