#!/usr/bin/env python3
"""Presses Ctrl-C at random moments of what takes long, and wants it gone within a bound, with a message and status 130.

    interrupt_test.py HALFBYTE ORIGINAL MODEL TEXT_MODEL [--moments 40] [--seed 1] [--bound 0.3] [--prompt-tokens 4000] [--only VERB]

ORIGINAL: to be quantised, of some GB. MODEL: large, so that a pass takes long; it needs no tokenizer. TEXT_MODEL: with a tokenizer, for
perplexity and chat. Prints a line a verb with the slowest end; exit status 1 when one moment was not as wanted.
tests/tools/interrupt_test.py is the small brother without a clock.
"""
import argparse
import collections
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

EARLIEST = 0.02  # seconds from the start to Ctrl-C: before, the operating system itself ends a program that has not begun
LONGEST = 4.0


def roomy_copy(model, folder):
    """The model with a context of 100,000 tokens, so that nothing ends by itself."""
    shutil.copytree(model, folder, symlinks=True)
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 100_000}))
    return folder


def try_moment(words, text, moment):
    """(seconds from Ctrl-C to the end, what happened)."""
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8") as process:
        if text:
            process.stdin.write(text)
            process.stdin.flush()
        time.sleep(moment)
        if process.poll() is not None:
            return 0.0, "had ended"
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.wait(60)
        seconds = time.monotonic() - start
        messages = process.stderr.read()
    is_right = process.returncode == 130 and "stopped" in "".join(messages.splitlines()[-1:])
    return seconds, "stopped" if is_right else f"WRONG: {process.returncode}, {messages[-200:]!r}"


def commands(arguments, scratch):
    """Of each verb, (its words, what is typed)."""
    model = roomy_copy(arguments.model, scratch / "model")
    text_model = roomy_copy(arguments.text_model, scratch / "text_model")
    book = scratch / "book"
    book.write_text("The ship was late, and it came to pass that nobody waited. " * 100_000)
    generate = ["generate", model, "--ignore-eos", "--max-gen-len", "90000"]
    return {
        "quantize": (["quantize", arguments.original, scratch / "result", "--overwrite", "--restart"], None),
        "generate, prefill": ([*generate, "--prompt-tokens", ",".join(["300"] * arguments.prompt_tokens)], None),
        "generate, decode": ([*generate, "--prompt-tokens", "1,300"], None),
        "perplexity": (["perplexity", text_model, "--text", book, "--ctx", "2048"], None),
        "chat": (["chat", text_model, "--chat-template", "zephyr", "--max-gen-len", "90000"], "The ship was late. " * 2000 + "\n"),
        "bench": (["bench", model, "--runs", "1000"], None),
    }


def is_as_wanted(name, words, text, arguments, moments):
    ends = collections.Counter()
    slowest = 0.0
    for _ in range(arguments.moments):
        seconds, what = try_moment([arguments.halfbyte, *map(str, words)], text, moments.uniform(EARLIEST, LONGEST))
        slowest = max(slowest, seconds)
        ends[what] += 1
    is_right = slowest <= arguments.bound and not any(what.startswith("WRONG") for what in ends)
    print(f"{name}: {dict(ends)}, slowest {slowest:.3f} s{'' if is_right else ' NOT AS WANTED'}", flush=True)
    return is_right


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("halfbyte")
    parser.add_argument("original", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text_model", type=pathlib.Path)
    parser.add_argument("--moments", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bound", type=float, default=0.3)
    parser.add_argument("--prompt-tokens", type=int, default=4000)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        chosen = {name: command for name, command in commands(arguments, pathlib.Path(scratch)).items() if arguments.only in (None, name)}
        results = [is_as_wanted(name, words, text, arguments, moments) for name, (words, text) in chosen.items()]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
