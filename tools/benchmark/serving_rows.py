#!/usr/bin/env python3
"""What a server promises beyond speed, measured on one model: streams at once on one copy of the weights, a shared beginning, a long prompt
among streams, slow connections beside honest ones, answers held to a schema, memory, and the time from start to ready.

    serving_rows.py HALFBYTE CKPT [--rounds 3]     a checkpoint with a context of 8,192 tokens or more
"""
import argparse
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import threading
import time

import serving


def start(program, checkpoint, *options):
    begin = time.monotonic()
    server = serving.Server("halfbyte", f"{program} serve {checkpoint} --port {{port}} --chat-template chatml -q {' '.join(options)}", 0.002)
    ready = time.monotonic() - begin
    sample = serving.words(402, random.Random(0))  # of 400 words
    server.tokens_a_word = len(json.load(serving.post(server.port, "/tokenize", {"text": sample}))["tokens"]) / 400
    return server, ready


def words(server, tokens, own):
    """Words that are about so many tokens of this model."""
    return serving.words(round(2 + tokens / server.tokens_a_word), own)


def speed_of(times):
    return (len(times) - 1) / (times[-1] - times[0])


def at_once(server, prompts, tokens):
    """Times of the tokens of each, and when each began."""
    found = [None] * len(prompts)

    def one(index):
        begin = time.monotonic()
        found[index] = [begin + seconds for seconds in serving.complete(server.port, prompts[index], tokens)]

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def streams(server, seed):
    """Tokens a second of one stream, and of eight while all of them answer."""
    own = random.Random(seed)
    alone = statistics.median(speed_of(serving.complete(server.port, words(server, 16, own), 64)) for _ in range(3))
    eight = at_once(server, [words(server, 16, own) for _ in range(8)], 96)
    begin, end = max(times[0] for times in eight), min(times[-1] for times in eight)
    together = sum(sum(begin <= at <= end for at in times) - 1 for times in eight) / (end - begin)
    prompt = words(server, 512, own)
    prefill = 512 / serving.complete(server.port, prompt, 1)[0]
    return {"one": alone, "eight": together, "eight over one": together / alone, "prefill 512": prefill, "eight over prefill": together / prefill}


def shared(server, seed):
    own = random.Random(seed)
    system = words(server, 1000, own)
    first = serving.complete(server.port, system + " one", 1)[0]
    second = serving.complete(server.port, system + " two", 1)[0]
    return {"first client": first, "second client": second, "ratio": second / first}


def long_prompt(server, seed, tokens):
    own = random.Random(seed)
    alone = serving.complete(server.port, words(server, tokens, own), 1)[0]
    stop, streams_times = threading.Event(), [[] for _ in range(4)]

    def stream(times):
        while not stop.is_set():
            begin = time.monotonic()
            one = serving.complete(server.port, words(server, 16, random.Random()), 200)
            times.append([begin + at for at in one])

    threads = [threading.Thread(target=stream, args=(times,)) for times in streams_times]
    for thread in threads:
        thread.start()
    time.sleep(2)
    among = serving.complete(server.port, words(server, tokens, own), 1)[0]
    stop.set()
    for thread in threads:
        thread.join()
    pauses = [b - a for times in streams_times for one in times for a, b in zip(one, one[1:])]
    return {"alone": alone, "among four streams": among, "ratio": among / alone, "longest pause": max(pauses)}


def slow(server, seed):
    """Honest streams beside 64 connections that send, or read, a byte a second."""
    own = random.Random(seed)
    prompts = [words(server, 16, own) for _ in range(8)]
    before = at_once(server, prompts[:4], 96)
    stop, connections = threading.Event(), []
    for i in range(64):
        one = socket.create_connection(("127.0.0.1", server.port))
        one.settimeout(0.01)
        connections.append(one)
        if i % 2:
            body = b'{"prompt": "a", "max_tokens": 1, "stream": true}'
            one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def trickle():
        while not stop.is_set():
            for i, one in enumerate(connections):
                try:
                    one.recv(1) if i % 2 else one.send(b"G")
                except OSError:
                    pass
            time.sleep(1)

    thread = threading.Thread(target=trickle)
    thread.start()
    time.sleep(1.5)
    beside = at_once(server, prompts[4:], 96)
    stop.set()
    thread.join()
    for one in connections:
        one.close()
    total = [sum(speed_of(times) for times in some) for some in (before, beside)]
    return {"without": total[0], "beside 64": total[1], "ratio": total[1] / total[0]}


def chat(server, prompt, tokens, more):
    """Seconds a token of an answer, the first aside."""
    body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "stream_options": {"include_usage": True}, **more}
    times, count = [], 0
    for at, event in serving.events(server.port, "/v1/chat/completions", body):
        count = (event.get("usage") or {}).get("completion_tokens", count)
        if event.get("choices"):
            times.append(at)
    return (times[-1] - times[0]) / (count - 1)


def schema(server, seed):
    """Steps of an answer that a schema holds, and of one that none does."""
    own = random.Random(seed)
    row = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}, "required": ["a", "b"]}
    held = {"response_format": {"type": "json_schema", "json_schema": {"name": "rows", "schema": {"type": "array", "items": row}}}}
    found = {"without": [], "with": []}
    for _ in range(3):
        for name, more in (("without", {}), ("with", held)):
            found[name].append(chat(server, words(server, 16, own), 96, more))
    medians = {name: statistics.median(some) for name, some in found.items()}
    return {**medians, "ratio": medians["with"] / medians["without"]}


def memory_of(server, checkpoint):
    pid = subprocess.run(["pgrep", "-f", f"halfbyte-model.*--port {server.port}|serve .*--port {server.port}"], capture_output=True, text=True, check=False).stdout.split()
    resident = max(int(line.split()[1]) for one in pid for line in pathlib.Path(f"/proc/{one}/status").read_text(encoding="utf-8").splitlines() if line.startswith("VmRSS"))
    weights = sum(os.path.getsize(path) for path in pathlib.Path(checkpoint).glob("*.safetensors"))
    return {"RSS, MB": resident / 1000, "weights, MB": weights / 1e6}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("checkpoint")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long", type=int, default=4000, help="tokens of the long prompt")
    parser.add_argument("--only", default="streams,shared,long_prompt,slow,schema")
    options = parser.parse_args()
    rows = {"streams": streams, "shared": shared, "long_prompt": lambda server, seed: long_prompt(server, seed, options.long), "slow": slow, "schema": schema}
    found = {}
    for round_number in range(options.rounds):
        server, ready = start(options.program, options.checkpoint)
        try:
            found.setdefault("start", []).append({"to ready": ready})
            for name in options.only.split(","):
                found.setdefault(name, []).append(rows[name](server, round_number * 100 + len(found)))
                print(f"round {round_number + 1}, {name}: {found[name][-1]}", flush=True)
            found.setdefault("memory", []).append(memory_of(server, options.checkpoint))
        finally:
            server.end()
    for name, runs in found.items():
        print(f"{name}: " + ", ".join(f"{key} {statistics.median(one[key] for one in runs):.3f}" for key in runs[0]))


if __name__ == "__main__":
    main()
