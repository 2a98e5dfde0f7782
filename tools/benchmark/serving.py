#!/usr/bin/env python3
"""Measures servers that speak OpenAI's completions side by side, in turn: tokens a second of several streams at once, and how
long first tokens take.

    serving.py --rounds 3 --streams 1,4,8 "halfbyte=build/release/bin/halfbyte serve CKPT --port {port}" \\
               "llama-server=llama-server -m MODEL.gguf -np 8 -c 16384 -t 2 --port {port}"

Each stream asks for one text after another: prompts of 16, 256, 64 and 1,024 words' tokens in turn, unlike those of every other request.
"""
import argparse
import http.client
import json
import random
import shlex
import socket
import statistics
import subprocess
import tempfile
import threading
import time

PROMPTS = [16, 256, 64, 1024]
WORDS = "time year people way day man thing woman life child world school state family student group country problem hand part place case".split()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    def __init__(self, name, command, look_every=0.05):
        self.name, self.port = name, free_port()
        with tempfile.TemporaryFile() as messages:
            self.process = subprocess.Popen(shlex.split(command.format(port=self.port)), stdout=subprocess.DEVNULL, stderr=messages)
            self.await_ready(name, messages, look_every)

    def await_ready(self, name, messages, look_every):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                messages.seek(0)
                raise SystemExit(f"{name} ended with status {self.process.returncode}: {messages.read().decode(errors='replace')[-500:].strip()}")
            try:
                if self.get("/health") == 200:
                    return
            except OSError:
                pass
            time.sleep(look_every)
        raise SystemExit(f"{name} did not become ready")

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", path)
        return connection.getresponse().status

    def end(self):
        self.process.terminate()
        self.process.wait(30)


def post(port, path, body):
    """The response to `body` in JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"status {response.status}: {response.read()[:300]}")
    return response


def events(port, path, body):
    """(seconds, event) of an answer of up to max_tokens that comes as a stream."""
    begin = time.monotonic()
    for line in post(port, path, {"temperature": 0, "stream": True, "ignore_eos": True, **body}):
        if line.startswith(b"data: {"):
            yield time.monotonic() - begin, json.loads(line[6:])


def complete(port, prompt, tokens):
    """Seconds to each token."""
    times = []
    for at, event in events(port, "/v1/completions", {"prompt": prompt, "max_tokens": tokens}):
        choices = event.get("choices") or []
        if choices and (choices[0].get("text") or choices[0].get("finish_reason") is None):
            times.append(at)
    return times


def words(count, random_words):
    return " ".join(random_words.choice(WORDS) for _ in range(max(1, count - 2)))


def run_streams(server, streams, requests, tokens, seed):
    results, lock = [], threading.Lock()

    def stream(index):
        own = random.Random(seed * 1000 + index)
        for i in range(requests):
            times = complete(server.port, words(PROMPTS[(index + i) % len(PROMPTS)], own), tokens)
            with lock:
                results.append(times)

    begin = time.monotonic()
    threads = [threading.Thread(target=stream, args=(i,)) for i in range(streams)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    seconds = time.monotonic() - begin
    firsts = sorted(times[0] for times in results if times)
    gaps = [b - a for times in results for a, b in zip(times, times[1:])]
    return {"tokens_per_s": streams * requests * tokens / seconds, "first_p50": statistics.median(firsts),
            "first_p95": firsts[min(len(firsts) - 1, int(len(firsts) * 0.95))], "worst_gap": max(gaps, default=0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="+", help="NAME=COMMAND with {port} in it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", default="1,4,8")
    parser.add_argument("--requests", type=int, default=4, help="of each stream")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    options = parser.parse_args()
    commands = [one.partition("=")[::2] for one in options.servers]
    found = {}
    for round_number in range(options.rounds):
        for name, command in commands:
            server = Server(name, command)
            try:
                complete(server.port, "warm up", 4)
                for streams in map(int, options.streams.split(",")):
                    one = run_streams(server, streams, options.requests, options.tokens, round_number * 10 + streams)
                    found.setdefault((streams, name), []).append(one)
                    print(f"round {round_number + 1}, {streams} streams, {name}: " + ", ".join(f"{key} {value:.3f}" for key, value in one.items()), flush=True)
            finally:
                server.end()
    for (streams, name), runs in sorted(found.items()):
        medians = {key: statistics.median(one[key] for one in runs) for key in runs[0]}
        first = found[streams, commands[0][0]]
        ratio = statistics.median(a["tokens_per_s"] / b["tokens_per_s"] for a, b in zip(first, runs))
        print(f"{streams} streams, {name}: " + ", ".join(f"{key} {value:.3f}" for key, value in medians.items()) + f"; {commands[0][0]} is {ratio:.2f} times")


if __name__ == "__main__":
    main()
