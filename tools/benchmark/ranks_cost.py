#!/usr/bin/env python3
"""What ranks cost: one process, ranks that share memory, ranks that go by the network, and by a network that takes its time.

    ranks_cost.py HALFBYTE CHECKPOINT [--rounds 3] [--delay-ms 1] [--tokens 32] [--prompt 512] [--slow]

Runs in turn, each rank with one thread: one process of as many threads as there are cores, 2 ranks by memory, 2 by Gloo over loopback.
--slow (root): also 4 ranks on two machines, which are namespaces, with that delay between them: tensor=4, and tensor=2,pipeline=2.
Prints medians, and the share of sums in a decode step (waiting for others included).
"""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

PORT = 29600


def bench(words, *more):
    return ["bench", str(words.checkpoint), "--prompt-tokens", str(words.prompt), "--gen-tokens", str(words.tokens), "--runs", "3", "--profile", "--json", "-q", *more]


def finished(*commands, environment):
    """The first one's result; all run at the same time."""
    processes = [subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", env=environment) for command in commands]
    results = [(*process.communicate(timeout=900), process.returncode) for process in processes]
    for _, messages, status in results:
        if status:
            sys.exit(f"{commands}: {messages}")
    return json.loads(results[0][0])


class Kinds:
    """Name: how it is run. Each gives a step's and a prefill's seconds, and the share of sums in the step."""

    def __init__(self, words):
        self.words, self.cores = words, len(os.sched_getaffinity(0))

    def run(self, *commands, threads=1):
        found = finished(*commands, environment={**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"})
        share = sum(one["share"] for one in found["profile"]["decode"]["work"] if one["kind"] == "rank_sums")
        return {"step_ms": 1e3 / found["decode_tokens_per_s"], "prefill": found["prefill_tokens_per_s"], "sums_share": share, "rss_mb": found["peak_rss_bytes"] / 1e6}

    def alone(self):
        return self.run([self.words.halfbyte, *bench(self.words)], threads=self.cores)

    def memory(self, ranks=2):
        return self.run([self.words.halfbyte, "launch", "-n", ranks, "--", *bench(self.words)], threads=ranks)

    def gloo(self):
        return self.run([self.words.halfbyte, "launch", "-n", 2, "--master-addr", "127.0.0.1", "--master-port", PORT, "--", *bench(self.words)], threads=2)

    def machines(self, *parallel):
        command = lambda node: ["ip", "netns", "exec", f"slow-{node}", self.words.halfbyte, "launch", "-n", 2, "--nnodes", 2, "--node-rank", node, "--master-addr", "10.78.0.1",
                                "--master-port", PORT, "--interface", "slow0", *parallel, "--", *bench(self.words)]
        return self.run(command(0), command(1), threads=2)


@contextlib.contextmanager
def slow_link(delay):
    script = pathlib.Path(__file__).with_name("delayed_link.py")
    with subprocess.Popen([sys.executable, "-B", script, "slow-0", "slow-1", "--delay-ms", str(delay)], stdout=subprocess.PIPE, encoding="ascii") as link:
        if link.stdout.readline() != "ready\n":
            sys.exit("no namespaces, or no TUN devices")
        try:
            yield
        finally:
            link.send_signal(signal.SIGTERM)
            time.sleep(0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("halfbyte")
    parser.add_argument("checkpoint")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay-ms", type=float, default=1.0)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--slow", action="store_true")
    words = parser.parse_args()
    kinds = Kinds(words)
    rows = {"one process": kinds.alone, "2 ranks, memory": kinds.memory, "2 ranks, Gloo": kinds.gloo, "4 ranks, memory": lambda: kinds.memory(4)}
    if words.slow:
        rows["4 ranks, 2 machines, tensor=4"] = lambda: kinds.machines()
        rows["4 ranks, 2 machines, tensor=2,pipeline=2"] = lambda: kinds.machines("--parallel", "tensor=2,pipeline=2")
    found = {name: [] for name in rows}
    with slow_link(words.delay_ms) if words.slow else contextlib.nullcontext():
        for _ in range(words.rounds):
            for name, row in rows.items():
                found[name].append(row())
    medians = {name: {key: statistics.median(one[key] for one in all_of_them) for key in all_of_them[0]} for name, all_of_them in found.items()}
    for name, one in medians.items():
        print(f"{name}: step {one['step_ms']:.2f} ms, prefill {one['prefill']:.0f} tokens/s, sums {100 * one['sums_share']:.1f} % of a step, {one['rss_mb']:.0f} MB", flush=True)
    print(json.dumps(medians))


if __name__ == "__main__":
    sys.exit(main())
