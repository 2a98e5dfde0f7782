#!/usr/bin/env python3
"""Measures halfbyte, llama.cpp, ik_llama.cpp and OpenVINO in turn, round after round, and prints a table in Markdown.

Each round runs everybody once; a ratio is the median of the rounds' ratios, so a machine that drifts bends it little. A peer that
cannot be built, installed or run is a line that says why. Nothing else should run meanwhile. What is built and made stays in the
scratch folder for the next time (12 GB): the peers, one model of 1.1 G parameters, and its quantised forms. ik_llama.cpp is in no
package registry: it is measured where its source is given (--ik). --busy, --depth and --experts measure what else users wait for.
"""
import argparse
import contextlib
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
# As COLUMNS, of a model with experts.
EXPERT_COLUMNS = {"decode": COLUMNS["decode"], "prefill": COLUMNS["prefill"]}
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


@contextlib.contextmanager
def busy_core():
    """Another program that has one core all the time."""
    core = min(os.sched_getaffinity(0))
    loop = f"import os; os.sched_setaffinity(0, [{core}])\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", loop], stdin=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def with_extras(options, decode):
    """Columns of decode(depth) beside another program and after long contexts."""
    found = {}
    if options.busy:
        with busy_core():
            found["busy"] = decode(0)
    return found | {f"depth {depth}": decode(depth) for depth in options.depth}


class Halfbyte:
    def __init__(self, scratch, options, checkpoint, experts=False):
        self.program, self.options, self.experts = scratch.program, options, experts
        name, words = checkpoint
        self.checkpoint = scratch.quantized(name, words, experts)

    def bench(self, *words):
        text, _, _ = output_of(self.program, "bench", self.checkpoint, "--threads", self.options.threads, "--runs", self.options.runs,
                               *words, *self.options.bench_option, "--json", "-q")
        return json.loads(text)

    def decode(self, depth):
        words = ["--kv", "int8"] if depth else []
        return self.bench("--prompt-tokens", 16, "--gen-tokens", 64, "--depth", depth, *words)["decode_tokens_per_s"]

    def measure(self):
        if self.experts:
            return {"decode": self.decode(0), "prefill": self.bench("--prompt-tokens", 512, "--gen-tokens", 1)["prefill_tokens_per_s"]}
        short = self.bench("--prompt-tokens", 16, "--gen-tokens", 64, "--loads", 5)
        long = self.bench("--prompt-tokens", 512, "--gen-tokens", 1)
        batch = self.bench("--prompt-tokens", 16, "--gen-tokens", 32, "--batch", 8)
        _, seconds, _ = output_of(self.program, "generate", self.checkpoint, "--prompt-tokens", PROMPT, "--max-gen-len", 1,
                                  "--temperature", 0, "--threads", self.options.threads, "-q")
        return {"decode": short["decode_tokens_per_s"], "prefill": long["prefill_tokens_per_s"], "batch": batch["decode_tokens_per_s"],
                "memory_share": short["memory_share"], "first_token": short["load_to_first_token_s"], "process": seconds,
                "rss": max(short["peak_rss_bytes"], long["peak_rss_bytes"]) / 1e9} | with_extras(self.options, self.decode)


class LlamaCpp:
    # Words of a decode after a long context: keys and values in 8 bits, which its flash attention reads.
    DEEP = ["-fa", "1", "-ctk", "q8_0", "-ctv", "q8_0"]
    # A program that loads for a first token, as fast as it can: without the run that warms it up, and with room for a short context
    # instead of the model's whole one.
    FIRST_TOKEN = ["llama-completion", "-no-cnv", "--no-warmup", "-c", 512]

    def __init__(self, scratch, options, kind, experts=False):
        self.options, self.folder, self.experts = options, scratch.llama(), experts
        self.words, self.model = [], scratch.quantized_gguf(kind, experts)

    def bench(self, *words):
        text, _, memory = output_of(self.folder / "llama-bench", "-m", self.model, "-t", self.options.threads, "-r", self.options.runs,
                                    "-o", "json", *self.words, *words)
        return statistics.median(json.loads(text)[0]["samples_ts"]), memory

    def decode(self, depth):
        return self.bench("-p", 0, "-n", 64, "-d", depth or 16, *(self.DEEP if depth else []))[0]

    def measure(self):
        decode, memory = self.bench("-p", 0, "-n", 64, "-d", 16)
        prefill, more = self.bench("-p", 512, "-n", 0)
        if self.experts:
            return {"decode": decode, "prefill": prefill}
        return {"decode": decode, "prefill": prefill, "rss": max(memory, more) / 1e9} | self.first_token() | with_extras(self.options, self.decode)

    def first_token(self):
        # A whole process is all there is: it stands for both.
        program, *words = self.FIRST_TOKEN
        _, seconds, _ = output_of(self.folder / program, "-m", self.model, "-p", "abcdef", "-n", 1, "-t", self.options.threads, *words)
        return {"first_token": seconds, "process": seconds}


class IkLlama(LlamaCpp):
    FIRST_TOKEN = ["llama-cli", "--no-warmup", "-c", 512]

    def __init__(self, scratch, options, kind, experts=False):
        self.options, self.folder, self.experts = options, scratch.ik(), experts
        name, *self.words = kind.split()
        self.words += ["-fmoe", "1"] if experts else []
        self.model = scratch.quantized_gguf(name, experts, self.folder if name.startswith("IQ") else None)

    def bench(self, *words):
        """Its llama-bench has no -d: -gp DEPTH,TOKENS decodes after a prompt that is not timed."""
        words = list(words)
        if "-d" in words:
            at = words.index("-d")
            depth, tokens = words[at + 1], words[words.index("-n") + 1]
            del words[at:at + 2]
            words[words.index("-n") + 1] = 0
            words += ["-gp", f"{depth},{tokens}"]
        return super().bench(*words)

    def first_token(self):
        # Repacking is for those who load for long.
        is_measured = not self.words and (self.folder / self.FIRST_TOKEN[0]).exists()
        return super().first_token() if is_measured else {}


class OpenVino:
    def __init__(self, scratch, options, _, experts=False):
        if experts:
            raise Absent("not measured with experts")
        self.options, self.python, self.model = options, scratch.python(), scratch.openvino()

    def measure(self):
        text, _, _ = output_of(self.python, HERE / "openvino_peer.py", "measure", self.model, self.options.threads, self.options.runs)
        found = json.loads(text.splitlines()[-1])
        return {"decode": statistics.median(found["decode"]), "prefill": statistics.median(found["prefill"]),
                "first_token": found["load_to_first_token_s"], "rss": found["peak_rss_bytes"] / 1e9}


CONTESTANTS = {name: (Halfbyte, checkpoint) for name, checkpoint in QUANTIZED.items()} | {
    "llama.cpp Q4_0": (LlamaCpp, "Q4_0"), "llama.cpp Q4_K_M": (LlamaCpp, "Q4_K_M"), "OpenVINO int4 g128": (OpenVino, None),
    "ik_llama.cpp Q4_0": (IkLlama, "Q4_0"), "ik_llama.cpp Q4_0 -rtr": (IkLlama, "Q4_0 -rtr 1"), "ik_llama.cpp IQ4_KS": (IkLlama, "IQ4_KS")}
WITH_EXPERTS = [FIRST, "llama.cpp Q4_0", "ik_llama.cpp Q4_0", "ik_llama.cpp Q4_0 -rtr"]


def prepared(scratch, options, experts=False):
    """Those that can run, and why the others cannot."""
    ready, absent = {}, {}
    for name, (kind, word) in CONTESTANTS.items():
        if any(part in name for part in options.without) or (experts and name not in WITH_EXPERTS) or (kind is IkLlama and not options.ik):
            continue
        print(f"preparing {name}", file=sys.stderr, flush=True)
        try:
            ready[name] = kind(scratch, options, word, experts)
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


def print_table(found, absent, columns):
    row("", *(title for title, _, _ in columns.values()))
    row(*["---"] * (len(columns) + 1))
    for name in found:
        row(name, *(cell(found, name, column) for column in columns))
    for name, reason in absent.items():
        row(name, f"not run: {reason}", *[""] * (len(columns) - 1))


def measured(scratch, options):
    """Prints the tables; gives who could not be measured."""
    ready, absent = prepared(scratch, options)
    others, more_absent = prepared(scratch, options, experts=True) if options.experts else ({}, {})
    if options.only_prepare:
        return absent | more_absent
    found = rounds(ready, absent, options.rounds)
    print(f"Random bfloat16 weights of 1.1 G parameters, {options.threads} threads, median of {options.rounds} rounds of {options.runs} runs; decode of 64 tokens "
          f"after 16; first token: of a prompt of 8; in brackets: how many times better {FIRST} is. {machine()}\n")
    print_table(found, absent, COLUMNS)
    if options.experts:
        print("\nThe first two layers of Qwen3-30B-A3B, 128 experts of which 8\n")
        print_table(rounds(others, more_absent, options.rounds), more_absent, EXPERT_COLUMNS)
    return absent | more_absent


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
    parser.add_argument("--ik", metavar="DIR", help="ik_llama.cpp's source: builds and measures it too")
    parser.add_argument("--busy", action="store_true", help="decode too while another program has a core")
    parser.add_argument("--depth", action="append", default=[], type=int, metavar="N", help="decode too after N tokens, keys and values in 8 bits; repeatable")
    parser.add_argument("--experts", action="store_true", help="a second table, of a mixture of experts")
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
    scratch = Scratch(options.scratch, pathlib.Path(options.halfbyte).resolve(), options)
    if options.busy:
        COLUMNS["busy"] = ("decode beside a busy program", "{:.1f}", True)
    for depth in options.depth:
        COLUMNS[f"depth {depth}"] = (f"decode after {depth:,}", "{:.1f}", True)
    absent = measured(scratch, options)
    if not options.only_prepare and not options.no_convert:
        print_converting(*convert_seconds(scratch, options))
    for name, reason in absent.items():
        print(f"not run: {name}: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
