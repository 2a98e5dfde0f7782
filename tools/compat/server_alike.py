#!/usr/bin/env python3
"""Greedy answers of `halfbyte serve`, alone and with seven others, beside those of `halfbyte generate`: the same texts, for prompts of 1 to 400 words
drawn at random.

    server_alike.py HALFBYTE CKPT [PROMPTS]     a checkpoint with a tokenizer, quantised or not
"""
import concurrent.futures
import json
import random
import subprocess
import sys
import tempfile
import pathlib

from server_soak import Server, body_of, text_in

WORDS = "time year people way day man thing woman life child world school state family student group country problem hand part place case".split()
TOKENS = 32


def drawn(count, most):
    own = random.Random(7)
    return [" ".join(own.choice(WORDS) for _ in range(min(most, own.choice([1, 2, 5, 9, 20, 60, 150, 400])))) for _ in range(count)]


def generated(program, checkpoint, prompt):
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch, "prompt.txt")
        file.write_text(prompt, encoding="utf-8")
        words = [program, "generate", checkpoint, "--prompt-file", file, "--max-gen-len", str(TOKENS), "--temperature", "0", "--json", "-q"]
        return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["generations"][0]["text"].removeprefix(" ")


def answer(server, prompt):  # the space before its first word is part of a completion, not of a text on its own
    return text_in(server.post(body_of(prompt, TOKENS))[1]).removeprefix(" ")


def main(program, checkpoint, count="100"):
    context = json.loads(pathlib.Path(checkpoint, "config.json").read_text(encoding="utf-8"))["max_position_embeddings"]
    prompts = drawn(int(count), (context - TOKENS) // 5)  # a word has five tokens at most
    wanted = [generated(program, checkpoint, prompt) for prompt in prompts]
    server = Server(program, checkpoint)
    try:
        alone = [answer(server, prompt) for prompt in prompts]
    finally:
        server.process.terminate()
        server.process.wait(60)
    server = Server(program, checkpoint)  # anew, so that no beginning is known
    try:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda prompt: answer(server, prompt), prompts))
    finally:
        server.process.terminate()
        server.process.wait(60)
    others = [sum(a != b for a, b in zip(wanted, texts)) for texts in (alone, together)]
    print(f"{len(prompts)} prompts, {len(set(wanted))} answers: {others[0]} otherwise alone, {others[1]} otherwise with seven others")
    return 1 if any(others) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
