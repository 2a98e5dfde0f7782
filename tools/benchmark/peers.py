#!/usr/bin/env python3
"""Measures halfbyte, llama.cpp and OpenVINO in turn, round after round, and prints a table in Markdown.

Each round runs everybody once; a ratio is the median of the rounds' ratios, so a machine that drifts bends it little. A peer that
cannot be built, installed or run is a line that says why. Nothing else should run meanwhile. What is built and made stays in the
scratch folder for the next time (12 GB): the peers, one model of 1.1 G parameters, and its quantised forms.
"""
import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

from peers_setup import HERE, Absent, Scratch

QUANTIZED = {"halfbyte sym_int4 g128": ("quantized", ["--group-size", "128", "--scheme-for", "lm_head=sym_int8"]),
             "halfbyte sym_int4 g64": ("quantized-g64", ["--group-size", "64", "--scheme-for", "lm_head=sym_int8"])}
FIRST = next(iter(QUANTIZED))
# What is measured, how it is written, and whether more is better. Seconds and bytes are worse the more there are.
COLUMNS = {"decode": ("decode, tokens/s", "{:.1f}", True), "prefill": ("prefill 512, tokens/s", "{:.0f}", True),
           "batch": ("decode of 8, tokens/s", "{:.1f}", True), "memory_share": ("of memory's speed", "{:.0%}", True),
           "first_token": ("load to first token, s", "{:.2f}", False), "process": ("the same, whole process, s", "{:.2f}", False),
           "rss": ("peak memory, GB", "{:.2f}", False)}
PROMPT = ",".join(str(number * 7919 % 32000) for number in range(8))


def output_of(*words):
    """stdout, seconds and peak memory (bytes) of a command."""
    start = time.perf_counter()
    with subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        text = process.stdout.read()
        messages = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        lines = messages.decode(errors="replace").strip().splitlines() or ["no message"]
        raise Absent(f"{pathlib.Path(words[0]).name} ended with {process.returncode}: {lines[-1][:200]}")
    return text, time.perf_counter() - start, usage.ru_maxrss * 1024


class Halfbyte:
    def __init__(self, scratch, options, checkpoint):
        self.program, self.options = scratch.program, options
        name, words = checkpoint
        self.checkpoint = scratch.quantized(name, words)

    def bench(self, *words):
        text, _, _ = output_of(self.program, "bench", self.checkpoint, "--threads", self.options.threads, "--runs", self.options.runs,
                               *words, *self.options.bench_option, "--json", "-q")
        return json.loads(text)

    def measure(self):
        short = self.bench("--prompt-tokens", 16, "--gen-tokens", 64, "--loads", 5)
        long = self.bench("--prompt-tokens", 512, "--gen-tokens", 1)
        batch = self.bench("--prompt-tokens", 16, "--gen-tokens", 32, "--batch", 8)
        _, seconds, _ = output_of(self.program, "generate", self.checkpoint, "--prompt-tokens", PROMPT, "--max-gen-len", 1,
                                  "--temperature", 0, "--threads", self.options.threads, "-q")
        return {"decode": short["decode_tokens_per_s"], "prefill": long["prefill_tokens_per_s"], "batch": batch["decode_tokens_per_s"],
                "memory_share": short["memory_share"], "first_token": short["load_to_first_token_s"], "process": seconds,
                "rss": max(short["peak_rss_bytes"], long["peak_rss_bytes"]) / 1e9}


class LlamaCpp:
    def __init__(self, scratch, options, kind):
        self.options, self.folder, self.model = options, scratch.llama(), scratch.quantized_gguf(kind)

    def bench(self, *words):
        text, _, memory = output_of(self.folder / "llama-bench", "-m", self.model, "-t", self.options.threads, "-r", self.options.runs,
                                    "-o", "json", *words)
        return statistics.median(json.loads(text)[0]["samples_ts"]), memory

    def measure(self):
        decode, memory = self.bench("-p", 0, "-n", 64, "-d", 16)
        prefill, more = self.bench("-p", 512, "-n", 0)
        # A program that loads for a first token is all there is: it stands for both.
        _, seconds, _ = output_of(self.folder / "llama-completion", "-m", self.model, "-p", "abcdef", "-n", 1, "-t", self.options.threads, "-no-cnv")
        return {"decode": decode, "prefill": prefill, "first_token": seconds, "process": seconds, "rss": max(memory, more) / 1e9}


class OpenVino:
    def __init__(self, scratch, options, _):
        self.options, self.python, self.model = options, scratch.python(), scratch.openvino()

    def measure(self):
        text, _, _ = output_of(self.python, HERE / "openvino_peer.py", "measure", self.model, self.options.threads, self.options.runs)
        found = json.loads(text.splitlines()[-1])
        return {"decode": statistics.median(found["decode"]), "prefill": statistics.median(found["prefill"]),
                "first_token": found["load_to_first_token_s"], "rss": found["peak_rss_bytes"] / 1e9}


CONTESTANTS = {name: (Halfbyte, checkpoint) for name, checkpoint in QUANTIZED.items()} | {
    "llama.cpp Q4_0": (LlamaCpp, "Q4_0"), "llama.cpp Q4_K_M": (LlamaCpp, "Q4_K_M"), "OpenVINO int4 g128": (OpenVino, None)}


def prepared(scratch, options):
    """Those that can run, and why the others cannot."""
    ready, absent = {}, {}
    for name, (kind, word) in CONTESTANTS.items():
        if any(part in name for part in options.without):
            continue
        print(f"preparing {name}", file=sys.stderr, flush=True)
        try:
            ready[name] = kind(scratch, options, word)
        except Absent as reason:
            absent[name] = str(reason)
    return ready, absent


def rounds(ready, absent, count):
    """{name: [what measure() gave, one a round]}, everybody in turn in each."""
    found = {name: [] for name in ready}
    for number in range(count):
        for name in list(ready):
            print(f"round {number + 1} of {count}: {name}", file=sys.stderr, flush=True)
            try:
                found[name].append(ready[name].measure())
            except (Absent, ValueError, KeyError) as reason:
                absent[name] = f"round {number + 1}: {reason}"
                del ready[name], found[name]
    return found


def ratio(ours, theirs, column):
    """How many times better we are, in the median of the rounds."""
    pairs = [(our[column], their[column]) for our, their in zip(ours, theirs)]
    return statistics.median(our / their if COLUMNS[column][2] else their / our for our, their in pairs)


def cell(found, name, column):
    values = [one[column] for one in found[name] if column in one]
    if not values:
        return ""
    text = COLUMNS[column][1].format(statistics.median(values))
    return text if name == FIRST or FIRST not in found else f"{text} ({ratio(found[FIRST], found[name], column):.2f}x)"


def convert_seconds(scratch, options):
    """{name: [(seconds with a sync of the file system, peak memory in bytes)]} of a conversion to 4 bits, in turn."""
    target = scratch.folder / "converted"
    ours = [scratch.program, "quantize", scratch.model(), target, "--group-size", 128, "--scheme-for", "lm_head=sym_int8", "--overwrite", "-q"]
    kinds = {"halfbyte --search absmax": lambda: [*ours, "--search", "absmax"], "halfbyte": lambda: ours,
             "llama-quantize Q4_0, from bfloat16 GGUF": lambda: [scratch.llama() / "llama-quantize", scratch.gguf(), target.with_suffix(".gguf"), "Q4_0"]}
    found, absent = {name: [] for name in kinds}, {}
    for _ in range(options.rounds):
        for name, words in kinds.items():
            try:
                found[name].append(converted(words()))
            except Absent as reason:
                absent[name] = str(reason)
    shutil.rmtree(target, ignore_errors=True)
    target.with_suffix(".gguf").unlink(missing_ok=True)
    return {name: values for name, values in found.items() if values}, absent


def converted(words):
    os.sync()
    start = time.perf_counter()
    _, _, memory = output_of(*words)
    os.sync()
    return time.perf_counter() - start, memory


def row(*cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def print_table(found, absent):
    row("", *(title for title, _, _ in COLUMNS.values()))
    row(*["---"] * (len(COLUMNS) + 1))
    for name in found:
        row(name, *(cell(found, name, column) for column in COLUMNS))
    for name, reason in absent.items():
        row(name, f"not run: {reason}", *[""] * (len(COLUMNS) - 1))


def print_converting(found, absent):
    print("\n| 2.2 GB of bfloat16 to 4 bits, and sync | seconds | peak memory, GB |\n| --- | --- | --- |")
    for name, values in found.items():
        row(name, f"{statistics.median(seconds for seconds, _ in values):.1f}", f"{max(memory for _, memory in values) / 1e9:.2f}")
    for name, reason in absent.items():
        row(name, f"not run: {reason}", "")


def machine():
    names = [line.split(":", 1)[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores, {platform.system()}"


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--halfbyte", default=HERE.parent.parent / "build/release/bin/halfbyte", help="the program")
    parser.add_argument("--scratch", default=pathlib.Path.home() / ".cache/halfbyte-peers", help="where everything is built and made")
    parser.add_argument("--llama-cpp", metavar="DIR", help="folder with llama-bench, llama-quantize and llama-completion, instead of building them")
    parser.add_argument("--llama-source", metavar="DIR", help="llama.cpp's source, instead of downloading it")
    parser.add_argument("--python", help="a Python with openvino, optimum-intel, torch and sentencepiece, instead of a new environment")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3, help="of each measurement in a round")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="leave out those whose name has this in it; repeatable")
    parser.add_argument("--bench-option", action="append", default=[], metavar="WORD", help="one more word for `halfbyte bench` (--bench-option=--dtype); repeatable")
    parser.add_argument("--only-prepare", action="store_true", help="build and make everything, measure nothing")
    parser.add_argument("--no-convert", action="store_true", help="do not time conversions")
    return parser.parse_args()


def main():
    options = parsed()
    scratch = Scratch(options.scratch, pathlib.Path(options.halfbyte).resolve(), options.llama_cpp, options.llama_source, options.python)
    ready, absent = prepared(scratch, options)
    if not options.only_prepare:
        found = rounds(ready, absent, options.rounds)
        print(f"Random bfloat16 weights of 1.1 G parameters, {options.threads} threads, median of {options.rounds} rounds of {options.runs} runs; decode of 64 tokens "
              f"after 16; first token: of a prompt of 8; in brackets: how many times better {FIRST} is. {machine()}\n")
        print_table(found, absent)
        if not options.no_convert:
            print_converting(*convert_seconds(scratch, options))
    for name, reason in absent.items():
        print(f"not run: {name}: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
